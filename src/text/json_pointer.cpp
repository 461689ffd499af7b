#include "text/json_pointer.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// "~1" is "/", "~0" is "~".
std::string unescape(std::string_view step) {
  std::string out;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const bool escape = step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1');
    out += escape ? (step[++i] == '1' ? '/' : '~') : step[i];
  }
  return out;
}

const Json* child(const Json& value, const std::string& step) {
  if (value.is_object()) {
    const auto found = value.find(step);
    return found == value.end() ? nullptr : &*found;
  }
  if (!value.is_array()) return nullptr;
  std::size_t index = 0;
  const char* end = step.data() + step.size();
  const auto parsed = std::from_chars(step.data(), end, index);
  return parsed.ec == std::errc() && parsed.ptr == end && index < value.size() ? &value[index] : nullptr;
}

}  // namespace

const Json* resolve_local_reference(const Json& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (at != nullptr && !reference.empty()) {
    if (reference.front() != '/') return nullptr;
    reference.remove_prefix(1);
    const std::size_t end = std::min(reference.find('/'), reference.size());
    at = child(*at, unescape(reference.substr(0, end)));
    reference.remove_prefix(end);
  }
  return at;
}

}  // namespace lily
