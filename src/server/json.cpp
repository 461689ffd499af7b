#include "server/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lily {
namespace {

// Whether brackets outside strings nest deeper than the limit, in one pass and without recursion. On text
// that is not JSON the answer does not matter: the parser refuses that by itself.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<nlohmann::ordered_json> parse_request_json(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; })) {
    return fail(ErrorCode::kInvalidArgument, "expected a JSON object, found nothing");
  }
  if (too_deep(text)) {
    return fail(ErrorCode::kInvalidArgument, "expected at most {} levels of nested JSON", kMaxJsonDepth);
  }
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // The library's text quotes the offending bytes, which may not be UTF-8; the position says enough.
    return fail(ErrorCode::kInvalidArgument, "not valid JSON (or not UTF-8) at byte {} of {}", error.byte,
                text.size());
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kInvalidArgument, "not valid JSON: a number is out of range");
  }
}

std::string dump_json(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lily
