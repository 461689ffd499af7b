#include "cli/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/mmap.h"
#include "cli/flag_value.h"

namespace lily {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The key of a flag: its long name without dashes; "model" for MODEL.
std::string key_of(const Flag& flag) {
  std::string key(long_name(flag));
  key.erase(0, std::min(key.find_first_not_of('-'), key.size()));
  std::ranges::transform(key, key.begin(), [](unsigned char c) { return std::tolower(c); });
  return key;
}

// Flags that say where the configuration is are not part of it.
bool configurable(const Command& command, const Flag& flag) {
  return (flag.commands & command.bit) != 0 && !flag.names.starts_with("--config") &&
         !flag.names.starts_with("--print-config");
}

Result<void> set_line(std::string_view line, const Command& command, Options& options) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "expected name = value, found '{}'", line);
  }
  const std::string_view key = trimmed(line.substr(0, equals));
  const std::string_view value = trimmed(line.substr(equals + 1));
  const auto flag = std::ranges::find_if(
      flags(), [&](const Flag& f) { return configurable(command, f) && key_of(f) == key; });
  if (flag == flags().end()) {
    return fail(ErrorCode::kInvalidArgument, "expected a flag of 'lily {}', found '{}'", command.name, key);
  }
  if (!is_switch(*flag)) return set_flag(*flag, value, options);
  if (value != "true" && value != "false") {
    return fail(ErrorCode::kInvalidArgument, "{}: expected true or false, found '{}'", key, value);
  }
  options.*std::get<bool Options::*>(flag->field) = value == "true";
  return {};
}

// A field's value as set_flag() takes it; nullopt where there is none.
struct ValueText {
  std::optional<std::string> operator()(bool value) const { return value ? "true" : "false"; }
  std::optional<std::string> operator()(const std::string& value) const {
    return value.empty() ? std::nullopt : std::optional(value);
  }
  std::optional<std::string> operator()(std::int64_t value) const { return fmt::format("{}", value); }
  template <class T>
  std::optional<std::string> operator()(const std::optional<T>& value) const {
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  }
  template <class T>
  std::optional<std::string> operator()(const std::vector<T>& value) const {
    return value.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(value, ",")));
  }
};

}  // namespace

Result<void> read_config(const std::string& path, const Command& command, Options& options) {
  LILY_TRY(const MappedFile file, MappedFile::open(path));
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::string_view line = trimmed(whole);
    if (line.empty() || line.starts_with('#')) continue;
    auto set = set_line(line, command, options);
    if (!set.ok()) return std::move(set).error().in(fmt::format("{}: line {}", path, number));
  }
  return {};
}

std::string config_text(const Command& command, const Options& options) {
  std::string text =
      fmt::format("# lily {} --config FILE reads this; the command line counts more.\n", command.name);
  for (const Flag& flag : flags()) {
    if (!configurable(command, flag)) continue;
    const auto value = std::visit([&](auto member) { return ValueText()(options.*member); }, flag.field);
    text += flag.help.empty() ? "\n" : fmt::format("\n# {}\n", flag.help);
    text += value ? fmt::format("{} = {}\n", key_of(flag), *value) : fmt::format("# {} =\n", key_of(flag));
  }
  return text;
}

}  // namespace lily
