#include "checkpoint/json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/report.h"

namespace lily {
namespace {

using nlohmann::json;

// Walks the text without keeping it. nlohmann's interface: returning false stops the parse.
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(int depth) : depth_limit_(depth) {}

  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    problem_ = fmt::format("key \"{}\" occurs twice in one object", printable(name));
    return false;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    problem_ = fmt::format("not valid JSON at byte {}", position);
    return false;
  }

 private:
  bool open() {
    keys_.emplace_back();
    if (std::ssize(keys_) <= depth_limit_) return true;
    problem_ = fmt::format("nested deeper than {} levels", depth_limit_);
    return false;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  int depth_limit_;
  std::vector<std::unordered_set<std::string>>
      keys_;  // of the objects (and, empty, the arrays) that are open
  std::string problem_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return fail(ErrorCode::kCorrupt, "{} bytes of JSON, expected at most {}", text.size(), limits.bytes);
  }
  // The library takes a NUL for the end of the text, and would not look at what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return fail(ErrorCode::kCorrupt, "not valid JSON at byte {}", nul + 1);
  }
  Checker checker(limits.depth);
  if (!json::sax_parse(text, &checker)) return fail(ErrorCode::kCorrupt, "{}", checker.problem());
  return json::parse(text);
}

}  // namespace lily
