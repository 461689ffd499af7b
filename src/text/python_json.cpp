#include "text/python_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// Marks a binary value that holds the decimal digits of an integer beyond 64 bits; JSON text cannot hold
// binary.
constexpr std::uint64_t kBigInteger = 0x1A;
// Up to this many keys an object is searched from end to end.
constexpr std::size_t kSmallObject = 16;

class Builder final : public nlohmann::json_sax<Json> {
 public:
  [[nodiscard]] Json& document() { return document_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool number_float(number_float_t value, const string_t& spelling) override {
    if (spelling.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Json::binary({spelling.begin(), spelling.end()}, kBigInteger));
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*elements*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    // The library's text for a syntax error quotes bytes that may not be UTF-8; for a number it is plain.
    problem_ =
        error.id == 406 ? "a number is out of range" : fmt::format("not valid JSON at byte {}", position);
    return false;
  }

 private:
  struct Frame {
    Json* container;
    std::unordered_map<std::string, std::size_t> places;  // key -> index, once the object is not small
  };

  bool add(Json value) {
    place() = std::move(value);
    return true;
  }

  bool open(Json container) {
    if (open_.size() == static_cast<std::size_t>(kMaxTemplateJsonDepth)) {
      problem_ = fmt::format("nested deeper than {} levels", kMaxTemplateJsonDepth);
      return false;
    }
    Json& placed = place();
    placed = std::move(container);
    open_.push_back({&placed, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // Where the next value goes. Containers on the way never grow while something inside them is open.
  Json& place() {
    if (open_.empty()) return document_;
    Frame& frame = open_.back();
    if (frame.container->is_array()) {
      frame.container->push_back(nullptr);
      return frame.container->back();
    }
    return field(frame);
  }

  Json& field(Frame& frame) {
    auto& object = frame.container->get_ref<Json::object_t&>();
    if (object.size() <= kSmallObject) {
      for (auto& [name, value] : object) {
        if (name == key_) return value;
      }
    } else {
      if (frame.places.empty()) {
        for (std::size_t i = 0; i < object.size(); ++i)
          frame.places.emplace(object.begin()[static_cast<std::ptrdiff_t>(i)].first, i);
      }
      const auto found = frame.places.find(key_);
      if (found != frame.places.end())
        return object.begin()[static_cast<std::ptrdiff_t>(found->second)].second;
    }
    if (!frame.places.empty()) frame.places.emplace(key_, object.size());
    object.emplace_back(key_, nullptr);
    return object.back().second;
  }

  Json document_;
  std::vector<Frame> open_;
  std::string key_;
  std::string problem_;
};

void print_string(const std::string& text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// fmt prints the shortest digits that read back, in Python's notation but for the ".0" of whole numbers.
std::string print_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// What stands between the parts of containers.
struct Separators {
  const char* item;
  const char* value;
};
constexpr Separators kTemplate = {", ", ": "};
constexpr Separators kCompact = {",", ":"};

Result<void> print(const Json& value, int depth, const Separators& separators, std::string& out);

Result<void> print_array(const Json& array, int depth, const Separators& separators, std::string& out) {
  out += '[';
  const char* separator = "";
  for (const Json& element : array) {
    out += std::exchange(separator, separators.item);
    LILY_TRY_VOID(print(element, depth + 1, separators, out));
  }
  out += ']';
  return {};
}

Result<void> print_object(const Json& object, int depth, const Separators& separators, std::string& out) {
  out += '{';
  const char* separator = "";
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    out += std::exchange(separator, separators.item);
    print_string(key, out);
    out += separators.value;
    LILY_TRY_VOID(print(value, depth + 1, separators, out));
  }
  out += '}';
  return {};
}

Result<void> print(const Json& value, int depth, const Separators& separators, std::string& out) {
  if (value.is_structured() && depth == kMaxTemplateJsonDepth) {
    return fail(ErrorCode::kInvalidArgument, "JSON nested deeper than {} levels", kMaxTemplateJsonDepth);
  }
  switch (value.type()) {
    case Json::value_t::array:
      return print_array(value, depth, separators, out);
    case Json::value_t::object:
      return print_object(value, depth, separators, out);
    case Json::value_t::string:
      print_string(value.get_ref<const std::string&>(), out);
      return {};
    case Json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return {};
    case Json::value_t::number_integer:
      out += fmt::format("{}", value.get<std::int64_t>());
      return {};
    case Json::value_t::number_unsigned:
      out += fmt::format("{}", value.get<std::uint64_t>());
      return {};
    case Json::value_t::number_float:
      out += print_float(value.get<double>());
      return {};
    case Json::value_t::binary: {
      const auto& digits = value.get_binary();
      LILY_CHECK(digits.has_subtype() && digits.subtype() == kBigInteger, "a binary value in JSON");
      out.append(digits.begin(), digits.end());
      return {};
    }
    case Json::value_t::null:
    case Json::value_t::discarded:
      break;
  }
  out += "null";
  return {};
}

}  // namespace

Result<Json> parse_template_json(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text, &builder)) return fail(ErrorCode::kInvalidArgument, "{}", builder.problem());
  return std::move(builder.document());
}

Result<std::string> to_template_json(const Json& value) {
  std::string out;
  LILY_TRY_VOID(print(value, 0, kTemplate, out));
  return out;
}

Result<std::string> to_compact_json(const Json& value) {
  std::string out;
  LILY_TRY_VOID(print(value, 0, kCompact, out));
  return out;
}

std::string to_python_str(const Json& scalar) {
  LILY_CHECK(!scalar.is_structured(), "str() of a {}", scalar.type_name());
  if (scalar.is_string()) return scalar.get<std::string>();
  if (scalar.is_null()) return "None";
  if (scalar.is_boolean()) return scalar.get<bool>() ? "True" : "False";
  return to_template_json(scalar).value();
}

}  // namespace lily
