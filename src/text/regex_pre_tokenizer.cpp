#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/log.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace lily {
namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
using Code = std::unique_ptr<pcre2_code, Free>;

// Far above what any text needs under a sane pattern; they end a pattern that backtracks without end.
constexpr std::uint32_t kMatchLimit = 100'000'000;
constexpr std::uint32_t kHeapLimitKib = 1U << 20;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

class RegexPreTokenizer final : public PreTokenizer {
 public:
  explicit RegexPreTokenizer(Code code) : code_(std::move(code)) {}

  void split(std::string_view text, std::vector<std::string_view>& out) const override {
    const std::unique_ptr<pcre2_match_data, Free> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
    const std::unique_ptr<pcre2_jit_stack, Free> stack(pcre2_jit_stack_create(32 << 10, 16 << 20, nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);

    std::size_t piece = 0;  // start of what is not yet in a piece
    std::size_t from = 0;
    while (from < text.size()) {
      const Match match = find(text, from, data.get(), context.get());
      if (!match.found) break;
      if (match.end == match.begin) {  // an empty match cuts nothing; go on one character later
        if (match.begin >= text.size()) break;
        from = match.begin + utf8::decode(text.substr(match.begin, 4)).length;
        continue;
      }
      if (match.begin > piece) out.push_back(text.substr(piece, match.begin - piece));
      out.push_back(text.substr(match.begin, match.end - match.begin));
      piece = from = match.end;
    }
    if (piece < text.size()) out.push_back(text.substr(piece));
  }

 private:
  struct Match {
    bool found = false;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  [[nodiscard]] Match find(std::string_view text, std::size_t from, pcre2_match_data* data,
                           pcre2_match_context* context) const {
    // Without NO_UTF_CHECK every call would validate the whole rest of the text: quadratic.
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its backtracking on the heap
      rc = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                       context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return {};
    if (rc < 0) {
      log::warn("split pattern: {}; the remaining {} bytes stay one piece", error_text(rc),
                text.size() - from);
      return {};
    }
    const std::size_t* ends = pcre2_get_ovector_pointer(data);
    return {true, ends[0], ends[1]};
  }

  Code code_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_regex_pre_tokenizer(const std::string& pattern) {
  int error = 0;
  std::size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (code == nullptr) {
    return fail(ErrorCode::kUnsupported, "split pattern: {} at offset {} of {}", error_text(error), offset,
                utf8::quoted(pattern));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT, matching interprets
  return std::unique_ptr<PreTokenizer>(std::make_unique<RegexPreTokenizer>(std::move(code)));
}

}  // namespace lily
