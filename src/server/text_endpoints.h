// Endpoints that answer at once, without generating: tokens of a text, text of tokens, tokens of a prompt.
#pragma once

#include "server/chat_handler.h"
#include "server/http.h"

namespace lily {

/// POST /tokenize: {"content" or "prompt": text} or {"messages", "tools", ...} -> {"tokens", "count",
/// "max_model_len"}.
[[nodiscard]] HttpResponse tokenize(const ChatHandler& chat, const Tokenizer& tokenizer, std::int64_t max_seq,
                                    const HttpRequest& request);

/// POST /detokenize: {"tokens"} -> {"content", "prompt"}, the same text twice: clients look for either.
[[nodiscard]] HttpResponse detokenize(const Tokenizer& tokenizer, const HttpRequest& request);

/// POST /v1/messages/count_tokens: a request of /v1/messages -> {"input_tokens"}.
[[nodiscard]] HttpResponse count_tokens(const ChatHandler& chat, const HttpRequest& request);

}  // namespace lily
