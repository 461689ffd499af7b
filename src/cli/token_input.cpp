#include "cli/token_input.h"

#include <fmt/format.h>

#include <charconv>

#include "base/npy.h"

namespace lily {

Result<std::vector<TokenId>> parse_ids(std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n";
  std::vector<TokenId> ids;
  for (;;) {
    const std::size_t start = text.find_first_not_of(kSeparators);
    if (start == std::string_view::npos) return ids;
    text.remove_prefix(start);
    const std::string_view item = text.substr(0, text.find_first_of(kSeparators));
    TokenId id = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (error != std::errc() || end != item.data() + item.size() || id < 0) {
      return fail(ErrorCode::kInvalidArgument, "expected token ids like 1,2,3, found '{}' at item {}", item,
                  ids.size() + 1);
    }
    ids.push_back(id);
    text.remove_prefix(item.size());
  }
}

Result<std::vector<TokenId>> required_ids(const Options& options) {
  if (options.ids.empty() == options.ids_file.empty()) {
    return fail(ErrorCode::kInvalidArgument, "expected one of --ids 1,2,3 and --ids-file F.npy, found {}",
                options.ids.empty() ? "neither" : "both");
  }
  if (!options.ids.empty()) return options.ids;
  return read_npy_ids(options.ids_file);
}

Result<void> check_ids(const std::vector<TokenId>& ids, std::int64_t vocab) {
  if (ids.empty()) return fail(ErrorCode::kInvalidArgument, "expected at least one token id, found none");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return fail(ErrorCode::kInvalidArgument, "token id {} at item {}: expected 0 to {}", ids[i], i + 1,
                  vocab - 1);
    }
  }
  return {};
}

std::string join_ids(const std::vector<TokenId>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

}  // namespace lily
