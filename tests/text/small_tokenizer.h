// Tokenizers for tests: one built by hand, the embedded model's, and the published one where it is at hand.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace lily::test {

/// Bytes in the byte alphabet of tokenizer.json.
std::string spell(std::string_view bytes);

/// A tokenizer.json whose ids 0..255 are the bytes and 256.. the results of `merges` in order; 1000 to 1005
/// are
/// <|im_start|>, <|im_end|> (special), <think>, </think>, <tool_call>, </tool_call>.
nlohmann::json small_tokenizer_json(const std::vector<std::pair<std::string, std::string>>& merges = {});

/// Parses `json`; the test fails if that fails.
Tokenizer parse(const nlohmann::json& json);

inline constexpr TokenId kImStart = 1000;
inline constexpr TokenId kImEnd = 1001;
inline constexpr TokenId kThink = 1002;
inline constexpr TokenId kEndThink = 1003;
inline constexpr TokenId kToolCall = 1004;
inline constexpr TokenId kEndToolCall = 1005;

/// The ids of the bytes of a text under small_tokenizer_json().
std::vector<TokenId> byte_ids(std::string_view text);

std::optional<std::string> read_file(const std::string& path);
/// tokenizer.json of models/tiny.
std::string tiny_tokenizer_json();
/// The tokenizer.json of Qwen3.6: LILY_QWEN_TOKENIZER names it, or it lies in ../shared beside the source.
std::optional<std::string> published_tokenizer_json();
/// A file of models/tiny.
std::string tiny_file(const std::string& name);

}  // namespace lily::test
