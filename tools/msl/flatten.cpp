#include "flatten.h"

#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace lily::msl {
namespace {

namespace fs = std::filesystem;

class Flattener {
 public:
  explicit Flattener(const std::vector<fs::path>& folders) : folders_(folders) {}

  Result<void> add(const fs::path& path) {
    if (!seen_.insert(fs::weakly_canonical(path)).second) return {};
    LILY_TRY(const std::string text, read_text(path));
    mark(path, 1);
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) LILY_TRY_VOID(add_line(path, number, line));
    return {};
  }
  std::string take() { return std::move(out_); }

 private:
  void mark(const fs::path& path, int line) {
    out_ += fmt::format("#line {} \"{}\"\n", line, path.generic_string());
  }

  Result<void> add_line(const fs::path& path, int number, const std::string& line) {
    if (line == "#pragma once") {
      out_ += '\n';
      return {};
    }
    constexpr std::string_view kInclude = "#include \"";
    if (!line.starts_with(kInclude)) {
      out_ += line + '\n';
      return {};
    }
    const std::string name = line.substr(kInclude.size(), line.find('"', kInclude.size()) - kInclude.size());
    const auto header = find(path, name);
    if (!header)
      return fail(ErrorCode::kNotFound, "{}:{}: error: no header \"{}\"", path.string(), number, name);
    LILY_TRY_VOID(add(*header));
    mark(path, number + 1);
    return {};
  }

  [[nodiscard]] std::optional<fs::path> find(const fs::path& includer, const std::string& name) const {
    if (fs::path beside = includer.parent_path() / name; fs::exists(beside)) return beside.lexically_normal();
    for (const fs::path& folder : folders_) {
      if (fs::path there = folder / name; fs::exists(there)) return there.lexically_normal();
    }
    return std::nullopt;
  }

  const std::vector<fs::path>& folders_;
  std::set<fs::path> seen_;
  std::string out_;
};

}  // namespace

Result<std::string> flatten(const fs::path& source, const std::vector<fs::path>& folders) {
  Flattener flattener(folders);
  LILY_TRY_VOID(flattener.add(source));
  return flattener.take();
}

Result<std::string> read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kIo, "{}: cannot be read", path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace lily::msl
