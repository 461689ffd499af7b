// Messages to the model's prompt, byte for byte as the checkpoint's chat_template.jinja renders them
// (implemented natively; docs/model.md section 6 of the specification restates the algorithm).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = true;     ///< false closes the think block in the prompt
  bool preserve_thinking = false;  ///< true keeps the reasoning of all earlier turns
  bool add_vision_id = false;
};

class ChatTemplate {
 public:
  /// Recognises the template by its text (chat_template.jinja, or the field of tokenizer_config.json). An
  /// unknown one is kUnsupported unless `assume_known`, which takes the Qwen3.6 rules all the same.
  static Result<ChatTemplate> recognise(std::string_view jinja_text, bool assume_known = false);

  /// `messages` and `tools` as the template sees them: arrays in OpenAI's shape, tool-call arguments as
  /// objects, reasoning in `reasoning_content`. Errors carry the template's own messages, with the message's
  /// index.
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           const ChatTemplateOptions& options) const;

 private:
  enum class Version { kQwen35, kQwen36 };
  explicit ChatTemplate(Version version) : version_(version) {}
  Version version_;
};

/// JSON text as transformers' `tojson` prints it: ", " and ": ", non-ASCII raw, insertion order, floats as
/// Python.
[[nodiscard]] std::string to_template_json(const nlohmann::ordered_json& value);

}  // namespace lily
