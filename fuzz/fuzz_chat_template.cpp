// Any bytes as {"messages": …, "tools": …}: an error, or a prompt; and JSON that is read prints as what reads
// the same.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/python_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lily::ChatTemplate chat_template = lily::ChatTemplate::recognise("", true).value();
  const auto request = lily::parse_template_json({reinterpret_cast<const char*>(data), size});
  if (!request.ok()) return 0;
  const std::string printed = lily::to_template_json(*request).value();
  const auto again = lily::parse_template_json(printed);
  LILY_CHECK(again.ok() && lily::to_template_json(*again).value() == printed, "{}", printed);

  if (!request->is_object()) return 0;
  const auto messages = request->value("messages", nlohmann::ordered_json());
  const auto tools = request->value("tools", nlohmann::ordered_json());
  for (const bool on : {false, true}) {
    const auto text = chat_template.render(
        messages, tools,
        {.add_generation_prompt = on, .enable_thinking = on, .preserve_thinking = on, .add_vision_id = on});
    LILY_CHECK(text.ok() || !text.error().message.empty(), "no message");
  }
  return 0;
}
