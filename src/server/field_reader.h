// Typed fields of one JSON object of a request. The first field that is wrong decides the error, and is named
// in it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/errors.h"

namespace lily {

/// Both ends included.
template <class T>
struct Range {
  T least;
  T most;
};

/// A value for an error message: scalars as they are (long text cut), containers by their kind.
[[nodiscard]] std::string describe(const nlohmann::ordered_json& value);

class FieldReader {
 public:
  /// Reads `object`, whose place in the request is `path` ("" for the request itself). A value that is no
  /// object is an error. `object` and `error` outlive the reader; nothing is read once `error` is set.
  FieldReader(const nlohmann::ordered_json& object, std::string path, std::optional<ApiError>& error);

  /// Each leaves `out` as it is when the field is absent or null.
  void boolean(std::string_view name, bool& out);
  void number(std::string_view name, Range<double> range, float& out);
  /// Also takes 5.0 for 5: JSON does not tell them apart.
  void integer(std::string_view name, Range<std::int64_t> range, std::int64_t& out);
  void string(std::string_view name, std::string& out);

  /// The raw value; null when absent, null, or an error was met before.
  [[nodiscard]] const nlohmann::ordered_json* find(std::string_view name) const;
  [[nodiscard]] const nlohmann::ordered_json& object() const { return object_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Where a field stands, e.g. "messages[1].content".
  [[nodiscard]] std::string path_of(std::string_view name) const;

  void fail(std::string_view name, const std::string& problem);
  void refuse(std::string_view name, const std::string& problem);  ///< as not supported

 private:
  const nlohmann::ordered_json& object_;
  std::string path_;
  std::optional<ApiError>& error_;
};

}  // namespace lily
