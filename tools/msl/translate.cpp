#include "translate.h"

#include <fmt/core.h>

#include <array>
#include <map>
#include <optional>
#include <span>

#include "tokens.h"

namespace lily::msl {
namespace {

constexpr std::array kPositions = {"thread_position_in_grid",
                                   "thread_position_in_threadgroup",
                                   "thread_index_in_threadgroup",
                                   "threadgroup_position_in_grid",
                                   "threads_per_threadgroup",
                                   "threadgroups_per_grid",
                                   "threads_per_grid",
                                   "thread_index_in_simdgroup",
                                   "simdgroup_index_in_threadgroup",
                                   "simdgroups_per_threadgroup",
                                   "threads_per_simdgroup",
                                   "thread_index_in_quadgroup",
                                   "dispatch_threads_per_threadgroup",
                                   "thread_execution_width",
                                   "quadgroup_index_in_threadgroup"};
constexpr std::array kForbidden = {"double", "virtual", "new",          "delete", "goto",         "throw",
                                   "try",    "catch",   "dynamic_cast", "typeid", "thread_local", "asm"};
constexpr std::array kKept = {"nodiscard", "maybe_unused", "fallthrough", "likely", "unlikely"};

template <std::size_t N>
bool contains(const std::array<const char*, N>& list, std::string_view word) {
  for (const std::string_view entry : list) {
    if (entry == word) return true;
  }
  return false;
}

/// [[name(value)]]
struct Attribute {
  std::string name;
  std::string value;
};

class Pass {
 public:
  Pass(std::string_view text, Target target, std::string_view table)
      : tokens_(tokenize(text)), target_(target), table_(table) {}

  Translation run() {
    out_.text = "#include <metal_stdlib>\n";
    // A .metal file is a library of its own: what two of them define alike stays apart.
    if (target_ == Target::kRun) out_.text += "namespace {\n";
    while (at_ < tokens_.size()) step();
    if (target_ == Target::kRun) add_table();
    return std::move(out_);
  }

 private:
  // Tokens. An index past the end reads as an empty token.
  [[nodiscard]] std::string_view text(std::size_t i) const {
    return i < tokens_.size() ? tokens_[i].text : std::string_view();
  }
  [[nodiscard]] std::size_t next(std::size_t i) const {
    do ++i;
    while (i < tokens_.size() && !tokens_[i].is_code());
    return i;
  }
  [[nodiscard]] std::string_view before(std::size_t i) const {
    while (i-- > 0) {
      if (tokens_[i].is_code()) return tokens_[i].text;
    }
    return {};
  }
  [[nodiscard]] std::size_t closing(std::size_t open) const {
    const std::string_view opens = text(open);
    const std::string_view closes = opens == "(" ? ")" : opens == "{" ? "}" : opens == "[" ? "]" : "]]";
    int depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      if (text(i) == opens) ++depth;
      if (text(i) == closes && --depth == 0) return i;
    }
    return tokens_.size();
  }
  [[nodiscard]] std::size_t find(std::string_view wanted, std::size_t from) const {
    while (from < tokens_.size() && text(from) != wanted) ++from;
    return from;
  }
  /// The code of [begin, end) on one line.
  [[nodiscard]] std::string code(std::size_t begin, std::size_t end) const {
    std::string joined;
    for (std::size_t i = begin; i < end && i < tokens_.size(); ++i) {
      if (tokens_[i].is_code()) {
        joined += tokens_[i].text;
      } else if (!joined.empty() && joined.back() != ' ') {
        joined += ' ';
      }
    }
    while (joined.ends_with(' ')) joined.pop_back();
    return joined;
  }
  void problem(std::size_t i, const std::string& what) {
    const Token& token = tokens_[std::min(i, tokens_.size() - 1)];
    out_.problems.push_back(fmt::format("{}:{}: error: {}", token.file, token.line, what));
  }

  // Output. Whatever is left out keeps its newlines.
  void keep(std::size_t end) {
    for (; at_ < end; ++at_) out_.text += text(at_);
  }
  void skip(std::size_t end) {
    for (; at_ < end && at_ < tokens_.size(); ++at_) {
      if (tokens_[at_].kind != Token::Kind::kSpace && !tokens_[at_].is_code()) out_.text += text(at_);
    }
  }
  void replace(std::size_t end, std::string_view with) {
    out_.text += with;
    skip(end);
  }

  void step() {
    const Token& token = tokens_[at_];
    if (token.kind == Token::Kind::kMarker) return pragma();
    if (token.kind == Token::Kind::kWord) return word();
    if (token.text == "[[") return attribute();
    if (token.text == "{") ++depth_;
    if (token.text == "}") --depth_;
    if (token.text == ";" || token.text == "}") is_template_ = false;
    keep(at_ + 1);
  }

  // The preprocessing step's stand-ins for system headers leave their names for the compilation.
  void pragma() {
    constexpr std::string_view kHeader = "#pragma msl_include ";
    if (!text(at_).starts_with(kHeader)) return keep(at_ + 1);
    const std::string_view header = text(at_++).substr(kHeader.size());
    out_.text += target_ == Target::kRun ? fmt::format("}}\n#include {}\nnamespace {{", header)
                                         : fmt::format("#include {}", header);
  }

  void word() {
    const std::string_view word = text(at_);
    if (contains(kForbidden, word)) problem(at_, fmt::format("'{}' is not Metal", word));
    if (word == "template") {
      if (text(next(at_)) == "[[") return instantiation();
      is_template_ = text(next(at_)) == "<";
    }
    if (word == "kernel") return kernel();
    if (word == "constant" && function_constant()) return;
    if (word == "threadgroup" && shared_object()) return;
    if (word == "is_function_constant_defined") return constant_is_set();
    keep(at_ + 1);
  }

  [[nodiscard]] std::vector<Attribute> attributes(std::size_t open) {
    std::vector<Attribute> found;
    const std::size_t end = closing(open);
    for (std::size_t i = next(open); i < end;) {
      const std::size_t name = i;
      while (i < end && text(i) != "(" && text(i) != ",") i = next(i);
      Attribute attribute{.name = code(name, i), .value = {}};
      if (text(i) == "(") {
        attribute.value = code(i + 1, closing(i));
        i = next(closing(i));
      }
      found.push_back(std::move(attribute));
      if (text(i) == ",") i = next(i);
    }
    return found;
  }

  // Outside parameters: the start of a kernel, or one that C++ knows.
  void attribute() {
    const auto found = attributes(at_);
    for (const Attribute& a : found) {
      if (a.name == "kernel" || a.name == "max_total_threads_per_threadgroup") return kernel();
      if (!contains(kKept, a.name)) problem(at_, fmt::format("unknown attribute [[{}]]", a.name));
    }
    keep(closing(at_) + 1);
  }

  // [[attributes]] kernel void name(parameters) { ... }, in any order of attributes and `kernel`.
  void kernel() {
    const std::size_t head = at_;
    bool is_kernel = false;
    std::string max_threads = "1024";
    std::size_t i = at_;
    for (; text(i) == "[[" || text(i) == "kernel"; i = next(i)) {
      if (text(i) == "kernel") {
        is_kernel = true;
        continue;
      }
      for (const Attribute& a : attributes(i)) {
        is_kernel |= a.name == "kernel";
        if (a.name == "max_total_threads_per_threadgroup") max_threads = a.value;
      }
      i = closing(i);
    }
    const std::size_t name = next(i);
    const std::size_t open = next(name);
    if (!is_kernel || text(i) != "void" || text(open) != "(") {
      problem(head, "expected `kernel void name(...)`");
      return keep(head + 1);
    }
    if (depth_ != 0) problem(head, "a kernel has to be in the global namespace");
    const std::string id(text(name));
    max_threads_[id] = max_threads;
    if (!is_template_) add_kernel(id, id, max_threads);
    replace(i, "");
    keep(open + 1);
    parameters(closing(open), id);
    const std::size_t body = next(at_);
    if (text(body) == "{") kernel_end_ = closing(body);
    is_template_ = false;
  }

  void add_kernel(const std::string& host_name, const std::string& function, const std::string& max_threads) {
    out_.kernels.push_back(host_name);
    entries_ += fmt::format("  {{\"{}\", [] {{ {}(); }}, {}}},\n", host_name, function, max_threads);
  }

  // Each of them up to its comma, with its attribute as a default argument.
  void parameters(std::size_t end, const std::string& kernel) {
    while (at_ < end) {
      const std::size_t begin = at_;
      std::size_t comma = at_;
      int depth = 0;
      for (; comma < end && (depth > 0 || text(comma) != ","); ++comma) {
        const std::string_view t = text(comma);
        if (t == "(" || t == "[" || t == "<" || t == "[[") ++depth;
        if (t == ")" || t == "]" || t == ">" || t == "]]") --depth;
      }
      parameter(begin, comma, kernel);
      keep(std::min(comma + 1, end));
    }
  }

  void parameter(std::size_t begin, std::size_t end, const std::string& kernel) {
    const std::size_t open = find("[[", begin);
    const std::string declaration = code(begin, std::min(open, end));
    if (open >= end) {
      if (!declaration.empty())
        problem(end, fmt::format("kernel {}: no attribute on '{}'", kernel, declaration));
      return keep(end);
    }
    const bool refers = declaration.find_first_of("*&") != std::string::npos;
    if (refers && declaration.find("device") == std::string::npos &&
        declaration.find("constant") == std::string::npos &&
        declaration.find("threadgroup") == std::string::npos) {
      problem(open, fmt::format("kernel {}: no address space in '{}'", kernel, declaration));
    }
    keep(open);
    const auto found = attributes(open);
    const std::string value = found.size() == 1 ? default_argument(found[0]) : "";
    if (value.empty())
      problem(open, fmt::format("kernel {}: unknown attribute on '{}'", kernel, declaration));
    replace(closing(open) + 1, target_ == Target::kRun ? "= " + value : "");
    keep(end);
  }

  [[nodiscard]] static std::string default_argument(const Attribute& a) {
    if (a.name == "buffer") return fmt::format("::emu::buffer<{}>()", a.value);
    if (a.name == "threadgroup") return fmt::format("::emu::threadgroup_argument<{}>()", a.value);
    if (contains(kPositions, a.name)) return fmt::format("::emu::{}()", a.name);
    return "";
  }

  // template [[host_name("x")]] [[kernel]] decltype(f<int>) f<int>;
  void instantiation() {
    const std::size_t head = at_;
    std::string host_name;
    std::size_t i = next(at_);
    for (; text(i) == "[[" || text(i) == "kernel"; i = next(i)) {
      if (text(i) == "kernel") continue;
      for (const Attribute& a : attributes(i)) {
        if (a.name == "host_name" && a.value.size() > 2) host_name = a.value.substr(1, a.value.size() - 2);
      }
      i = closing(i);
    }
    const std::size_t end = find(";", i);
    const std::size_t open = next(i);
    if (host_name.empty() || text(i) != "decltype" || text(open) != "(") {
      problem(head, "expected `template [[host_name(\"x\")]] [[kernel]] decltype(f<...>) f<...>;`");
      return skip(end + 1);
    }
    const std::string function = code(open + 1, closing(open));
    if (const std::string again = code(next(closing(open)), end); again != function) {
      problem(head, fmt::format("decltype({}) declares another function: {}", function, again));
    }
    const auto limit = max_threads_.find(function.substr(0, function.find('<')));
    add_kernel(host_name, function, limit != max_threads_.end() ? limit->second : "1024");
    if (target_ == Target::kCheck) out_.text += fmt::format("template decltype({0}) {0};", function);
    skip(end + 1);
  }

  // `constant T name [[function_constant(n)]];` and constants whose value needs one.
  bool function_constant() {
    const std::size_t type = text(next(at_)) == "const" ? next(next(at_)) : next(at_);
    const std::size_t name = next(type);
    const std::size_t then = next(name);
    const std::size_t end = find(";", at_);
    std::string value;
    if (text(then) == "[[") {
      const auto found = attributes(then);
      if (found.size() != 1 || found[0].name != "function_constant") return false;
      constants_[std::string(text(name))] = found[0].value;
      value = fmt::format("::emu::function_constant<{}>({}, \"{}\")", text(type), found[0].value, text(name));
    } else if (text(then) == "=" && names_constant(then, end)) {
      constants_[std::string(text(name))] = "";
      value = fmt::format("{}({})", text(type), code(then + 1, end));
    } else {
      return false;
    }
    if (target_ == Target::kCheck) {
      replace(end + 1, fmt::format("constant {0} {1} = {0}(1);", text(type), text(name)));
      return true;
    }
    const Token& place = tokens_[at_];
    replace(end + 1,
            fmt::format("\n#define {} ({})\n# {} \"{}\"\n", text(name), value, place.line, place.file));
    return true;
  }
  [[nodiscard]] bool names_constant(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      if (constants_.contains(std::string(text(i)))) return true;
    }
    return false;
  }

  void constant_is_set() {
    const std::size_t open = next(at_);
    const auto constant = constants_.find(std::string(text(next(open))));
    if (constant == constants_.end()) {
      problem(at_, fmt::format("'{}' is no function constant", text(next(open))));
      return keep(at_ + 1);
    }
    replace(closing(open) + 1, target_ == Target::kCheck
                                   ? "true"
                                   : fmt::format("::emu::function_constant_is_set({})", constant->second));
  }

  struct Declarator {
    std::string name;
    std::string extents;
  };

  // `threadgroup T a[n], b;`, an object and not what a pointer points to.
  bool shared_object() {
    const std::string_view previous = before(at_);
    if (previous != ";" && previous != "{" && previous != "}") return false;
    std::size_t name = at_;  // of the first declarator: the word before the first of `[ , ;`
    int depth = 0;
    std::size_t i = next(at_);
    for (; text(i) != ";" && (depth > 0 || (text(i) != "[" && text(i) != ",")); i = next(i)) {
      const std::string_view t = text(i);
      if (depth == 0 && (t == "*" || t == "&" || t == "(" || t == "=" || t == "{")) return false;
      if (t == "<") ++depth;
      if (t == ">") --depth;
      name = i;
    }
    const std::size_t end = find(";", i);
    if (at_ > kernel_end_ || kernel_end_ == 0) problem(at_, "threadgroup variable outside a kernel's body");
    const std::string type = code(at_ + 1, name);
    std::string made;
    for (const Declarator& d : declarators(name, end)) {
      made += fmt::format(
          "using msl_type_of_{0} = {1}{2}; threadgroup msl_type_of_{0} &{0} = "
          "*(threadgroup msl_type_of_{0} *)MSL_SHARED(msl_type_of_{0});",
          d.name, type.substr(type.find_first_not_of(' ')), d.extents);
    }
    replace(end + 1, made);
    return true;
  }
  [[nodiscard]] std::vector<Declarator> declarators(std::size_t begin, std::size_t end) const {
    std::vector<Declarator> found;
    for (std::size_t i = begin; i < end; i = next(i)) {
      Declarator d{.name = std::string(text(i)), .extents = {}};
      for (i = next(i); text(i) == "["; i = next(closing(i))) d.extents += code(i, closing(i) + 1);
      found.push_back(std::move(d));
    }
    return found;
  }

  void add_table() {
    out_.text += fmt::format(
        "\nconst ::emu::Kernel msl_kernels[] = {{\n{0}}};\n}}\nextern const ::emu::KernelTable {1};\n"
        "const ::emu::KernelTable {1} = {{msl_kernels, {2}}};\n",
        entries_.empty() ? "  {nullptr, nullptr, 0},\n" : entries_, table_, out_.kernels.size());
  }

  std::vector<Token> tokens_;
  const Target target_;
  const std::string_view table_;
  Translation out_;
  std::size_t at_ = 0;
  int depth_ = 0;                                 ///< of braces
  bool is_template_ = false;                      ///< what follows is a template's definition
  std::size_t kernel_end_ = 0;                    ///< the closing brace of the last kernel
  std::map<std::string, std::string> constants_;  ///< function constants by name: the index, "" where derived
  std::map<std::string, std::string> max_threads_;  ///< by kernel
  std::string entries_;                             ///< of the table
};

}  // namespace

Translation translate(std::string_view preprocessed, Target target, std::string_view table) {
  return Pass(preprocessed, target, table).run();
}

}  // namespace lily::msl
