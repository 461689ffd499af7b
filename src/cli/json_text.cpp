#include "cli/json_text.h"

#include <nlohmann/json.hpp>

namespace lily {
namespace {

constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;

}  // namespace

std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, kReplace) + "\n";
}
std::string json_document(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, kReplace) + "\n";
}

}  // namespace lily
