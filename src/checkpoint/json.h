// JSON from files nobody vouches for: strict about what nlohmann::json is lenient about. Include
// nlohmann/json.hpp in the .cpp that calls this.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace lily {

struct JsonLimits {
  std::size_t bytes = 16U << 20U;  ///< longest text
  int depth = 32;                  ///< deepest nesting of objects and arrays
};

/// Parses one JSON text. kCorrupt for a syntax error, text that is not UTF-8, a key that an object holds
/// twice (JSON leaves open which one counts), or more than `limits` allow; checked before any of it is
/// stored.
Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits);

}  // namespace lily
