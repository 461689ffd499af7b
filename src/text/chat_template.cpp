#include "text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/python_json.h"
#include "text/sha256.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// SHA-256 of the templates with "\n" line ends and nothing after the last line.
constexpr std::string_view kQwen35Sha256 = "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715";
constexpr std::string_view kQwen36Sha256 = "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259";

constexpr std::string_view kToolsHead = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kToolsTail = R"(
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls
</IMPORTANT>)";

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";

std::string normalize_line_ends(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') out += text[i];
  }
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

// str.strip()
std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const utf8::Sequence first = utf8::decode(text);
    if (!is_python_space(first.code_point)) break;
    text.remove_prefix(first.length);
  }
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
    if (!is_python_space(utf8::decode(text.substr(begin)).code_point)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::string_view strip_leading_newlines(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_trailing_newlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// A field, or null where there is none; JSON null counts as none.
const Json* field(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool has_type(const Json& part, std::string_view type) {
  const Json* value = field(part, "type");
  return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == type;
}

Error refuse(const std::string& where, std::string_view message) {
  return fail(ErrorCode::kInvalidArgument, "{}: {}", where, message);
}

Error wrong_type(const std::string& where, std::string_view expected, const Json* found) {
  return fail(ErrorCode::kInvalidArgument, "{}: expected {}, found {}", where, expected,
              found == nullptr ? "nothing" : found->type_name());
}

// Arrays of the template: absent and null are empty, anything else is refused.
Result<const Json*> array_field(const Json* value, const std::string& where) {
  static const Json kNone = Json::array();
  if (value == nullptr) return &kNone;
  if (!value->is_array()) return wrong_type(where, "an array", value);
  return value;
}

}  // namespace

// One rendering. The methods follow the template from top to bottom.
class ChatRenderer {
 public:
  ChatRenderer(const Json& messages, ChatTemplate::Version version, const ChatTemplateOptions& options)
      : messages_(messages), version_(version), options_(options) {}

  Result<std::string> render(const Json& tools) && {
    if (!messages_.is_array()) return wrong_type("messages", "an array", &messages_);
    if (messages_.empty()) return refuse("messages", "No messages provided.");
    LILY_TRY_VOID(head(tools));
    LILY_TRY_VOID(find_last_query());
    for (std::size_t i = 0; i < messages_.size(); ++i) LILY_TRY_VOID(message(i));
    if (options_.add_generation_prompt) {
      out_ += "<|im_start|>assistant\n";
      out_ += options_.enable_thinking ? "<think>\n" : "<think>\n\n</think>\n\n";
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string_view role(std::size_t index) const {
    const Json* value = field(messages_[index], "role");
    return value != nullptr && value->is_string() ? std::string_view(value->get_ref<const std::string&>())
                                                  : std::string_view();
  }
  [[nodiscard]] bool is_tool(std::size_t index) const { return role(index) == "tool"; }
  static std::string place(std::size_t index) { return fmt::format("messages[{}]", index); }

  // What a call of content() is for.
  enum class Use { kSystem, kSearch, kMessage };

  // render_content(): the stripped text of a message.
  Result<std::string> content(std::size_t index, Use use) {
    const Json* value = field(messages_[index], "content");
    if (value == nullptr) return std::string();
    if (value->is_string()) return std::string(strip(value->get_ref<const std::string&>()));
    const std::string where = place(index) + ".content";
    if (!value->is_array()) return refuse(where, "Unexpected content type.");
    std::string text;
    for (std::size_t i = 0; i < value->size(); ++i) {
      LILY_TRY_VOID(part((*value)[i], fmt::format("{}[{}]", where, i), use, text));
    }
    return std::string(strip(text));
  }

  Result<void> part(const Json& part, const std::string& where, Use use, std::string& out) {
    if (!part.is_object()) return refuse(where, "Unexpected item type in content.");
    if (part.contains("image") || part.contains("image_url") || has_type(part, "image")) {
      if (use == Use::kSystem) return refuse(where, "System message cannot contain images.");
      vision_part("Picture", "<|image_pad|>", use, images_, out);
      return {};
    }
    if (part.contains("video") || has_type(part, "video")) {
      if (use == Use::kSystem) return refuse(where, "System message cannot contain videos.");
      vision_part("Video", "<|video_pad|>", use, videos_, out);
      return {};
    }
    if (!part.contains("text")) return refuse(where, "Unexpected item type in content.");
    const Json& text = part["text"];
    if (!text.is_string()) return wrong_type(where + ".text", "a string", &text);
    out += text.get_ref<const std::string&>();
    return {};
  }

  void vision_part(std::string_view name, std::string_view pad, Use use, int& count, std::string& out) const {
    if (use == Use::kMessage) ++count;
    if (options_.add_vision_id) out += fmt::format("{} {}: ", name, count);
    out += "<|vision_start|>";
    out += pad;
    out += "<|vision_end|>";
  }

  // The system block: tools, the system message, or both.
  Result<void> head(const Json& tools) {
    LILY_TRY(const Json* list, array_field(tools.is_null() ? nullptr : &tools, "tools"));
    const bool has_system = role(0) == "system";
    std::string system;
    if (has_system) {
      LILY_TRY(system, content(0, Use::kSystem));
    }
    if (list->empty()) {
      if (has_system) out_ += "<|im_start|>system\n" + system + "<|im_end|>\n";
      return {};
    }
    out_ += "<|im_start|>system\n";
    out_ += kToolsHead;
    for (std::size_t i = 0; i < list->size(); ++i) {
      auto json = to_template_json((*list)[i]);
      if (!json.ok()) return std::move(json).error().in(fmt::format("tools[{}]", i));
      out_ += '\n' + *json;
    }
    out_ += kToolsTail;
    if (!system.empty()) out_ += "\n\n" + system;
    out_ += "<|im_end|>\n";
    return {};
  }

  // The last user message that is a question, not tool results in a user's clothes.
  Result<void> find_last_query() {
    for (std::size_t i = messages_.size(); i-- > 0;) {
      if (role(i) != "user") continue;
      LILY_TRY(const std::string text, content(i, Use::kSearch));
      if (text.starts_with("<tool_response>") && text.ends_with("</tool_response>")) continue;
      last_query_ = i;
      return {};
    }
    return refuse("messages", "No user query found in messages.");
  }

  Result<void> message(std::size_t index) {
    LILY_TRY(std::string text, content(index, Use::kMessage));
    const std::string_view who = role(index);
    if (who == "system") {
      if (index != 0) return refuse(place(index), "System message must be at the beginning.");
      return {};
    }
    if (who == "user") {
      out_ += "<|im_start|>user\n" + text + "<|im_end|>\n";
      return {};
    }
    if (who == "assistant") return assistant(index, text);
    if (who == "tool") {
      tool(index, text);
      return {};
    }
    return refuse(place(index), "Unexpected message role.");
  }

  Result<void> assistant(std::size_t index, std::string_view text) {
    std::string_view reasoning;
    const Json* given = field(messages_[index], "reasoning_content");
    if (given != nullptr && given->is_string()) {
      reasoning = given->get_ref<const std::string&>();
    } else if (const std::size_t close = text.find(kThinkClose); close != std::string_view::npos) {
      reasoning = strip_trailing_newlines(text.substr(0, close));
      const std::size_t open = reasoning.rfind(kThinkOpen);
      if (open != std::string_view::npos) reasoning.remove_prefix(open + kThinkOpen.size());
      reasoning = strip_leading_newlines(reasoning);
      text = strip_leading_newlines(text.substr(text.rfind(kThinkClose) + kThinkClose.size()));
    }
    out_ += "<|im_start|>assistant\n";
    const bool preserve = version_ == ChatTemplate::Version::kQwen36 && options_.preserve_thinking;
    if (preserve || index > last_query_) {
      out_ += "<think>\n";
      out_ += strip(reasoning);
      out_ += "\n</think>\n\n";
    }
    out_ += text;
    LILY_TRY_VOID(tool_calls(index, !strip(text).empty()));
    out_ += "<|im_end|>\n";
    return {};
  }

  Result<void> tool_calls(std::size_t index, bool after_text) {
    const std::string where = place(index) + ".tool_calls";
    LILY_TRY(const Json* calls, array_field(field(messages_[index], "tool_calls"), where));
    for (std::size_t i = 0; i < calls->size(); ++i) {
      if (i > 0) {
        out_ += '\n';
      } else if (after_text) {
        out_ += "\n\n";
      }
      LILY_TRY_VOID(tool_call((*calls)[i], fmt::format("{}[{}]", where, i)));
    }
    return {};
  }

  Result<void> tool_call(const Json& call, const std::string& where) {
    const bool wrapped = call.is_object() && call.contains("function");
    const Json& function = wrapped ? call["function"] : call;
    const std::string inside = wrapped ? where + ".function" : where;
    const Json* name = field(function, "name");
    if (name == nullptr || !name->is_string()) return wrong_type(inside + ".name", "a string", name);
    out_ += "<tool_call>\n<function=" + name->get_ref<const std::string&>() + ">\n";
    if (function.contains("arguments")) {
      const Json& arguments = function["arguments"];
      if (!arguments.is_object()) {
        return refuse(inside + ".arguments", fmt::format("Can only get item pairs from a mapping, found {}.",
                                                         arguments.type_name()));
      }
      for (const auto& [key, value] : arguments.get_ref<const Json::object_t&>()) {
        auto text = argument(value);
        if (!text.ok()) return std::move(text).error().in(fmt::format("{}.arguments.{}", inside, key));
        out_ += "<parameter=" + key + ">\n" + *text + "\n</parameter>\n";
      }
    }
    out_ += "</function>\n</tool_call>";
    return {};
  }

  // Strings raw and structures as JSON; other scalars as JSON in Qwen3.6, as Python prints them in Qwen3.5.
  [[nodiscard]] Result<std::string> argument(const Json& value) const {
    if (value.is_string()) return value.get<std::string>();
    if (version_ == ChatTemplate::Version::kQwen35 && !value.is_structured()) return to_python_str(value);
    return to_template_json(value);
  }

  // Results of one turn share a user block. (At index 0 the template opens none.)
  void tool(std::size_t index, const std::string& text) {
    if (index > 0 && !is_tool(index - 1)) out_ += "<|im_start|>user";
    out_ += "\n<tool_response>\n" + text + "\n</tool_response>";
    if (index + 1 == messages_.size() || !is_tool(index + 1)) out_ += "<|im_end|>\n";
  }

  const Json& messages_;
  ChatTemplate::Version version_;
  const ChatTemplateOptions& options_;
  std::size_t last_query_ = 0;
  int images_ = 0;
  int videos_ = 0;
  std::string out_;
};

Result<ChatTemplate> ChatTemplate::recognise(std::string_view jinja_text, bool assume_known) {
  const std::string digest = sha256_hex(normalize_line_ends(jinja_text));
  if (digest == kQwen35Sha256) return ChatTemplate(Version::kQwen35);
  if (digest == kQwen36Sha256 || assume_known) return ChatTemplate(Version::kQwen36);
  return fail(ErrorCode::kUnsupported,
              "chat template: expected that of Qwen3.5 or Qwen3.6, found one of {} bytes with SHA-256 {}",
              jinja_text.size(), digest);
}

Result<std::string> ChatTemplate::render(const Json& messages, const Json& tools,
                                         const ChatTemplateOptions& options) const {
  return ChatRenderer(messages, version_, options).render(tools);
}

}  // namespace lily
