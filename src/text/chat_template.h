// Messages to the model's prompt, byte for byte as the checkpoint's chat_template.jinja renders them,
// implemented natively: a template engine would have to be exact about Jinja as well.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = true;  ///< false closes the think block in the prompt
  bool preserve_thinking =
      false;  ///< true keeps the reasoning of all earlier turns (Qwen3.5's template has no such)
  bool add_vision_id = false;
};

class ChatTemplate {
 public:
  /// Recognises the template of Qwen3.5 or Qwen3.6 by its text (chat_template.jinja, or the field of
  /// tokenizer_config.json), whatever its line ends. An unknown one is kUnsupported unless `assume_known`,
  /// which takes the rules of Qwen3.6 all the same.
  static Result<ChatTemplate> recognise(std::string_view jinja_text, bool assume_known = false);

  /// `messages` and `tools` (null or empty: none) as the template sees them: arrays in OpenAI's shape,
  /// tool-call arguments as objects, reasoning in `reasoning_content`. Where the template would raise,
  /// kInvalidArgument with its own message behind the place, as in "messages[2]: System message must be at
  /// the beginning."; likewise where Jinja would silently print or skip what is no chat message (a number as
  /// text, an object as tool_calls).
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           const ChatTemplateOptions& options) const;

 private:
  enum class Version { kQwen35, kQwen36 };
  friend class ChatRenderer;
  explicit ChatTemplate(Version version) : version_(version) {}
  Version version_;
};

}  // namespace lily
