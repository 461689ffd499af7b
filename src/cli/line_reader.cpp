#include "cli/line_reader.h"

#include <histedit.h>
#include <langinfo.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <iostream>
#include <string_view>

#include "cli/console.h"

namespace lily {
namespace {

constexpr int kHistory = 1000;

std::string without_line_break(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return std::string(line);
}

class PipeReader final : public LineReader {
 public:
  Line read(const std::string& /*prompt*/) override {
    std::string text;
    if (!std::getline(std::cin, text)) return {};
    return {Line::Kind::kText, without_line_break(text)};
  }
  void remember(const std::string& /*text*/) override {}
};

// libedit (BSD licence; also in macOS) with emacs keys, or what ~/.editrc says.
class TerminalReader final : public LineReader {
 public:
  TerminalReader() : history_(history_init()), editor_(el_init("lily", stdin, stdout, stderr)) {
    // libedit takes bytes for characters in a locale that is not UTF-8, and containers often have none at
    // all.
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistory);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &TerminalReader::prompt_of);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL, 0);
    el_set(editor_, EL_HIST, history, history_);
    el_source(editor_, nullptr);
  }
  ~TerminalReader() override {
    el_end(editor_);
    history_end(history_);
  }
  TerminalReader(const TerminalReader&) = delete;
  TerminalReader& operator=(const TerminalReader&) = delete;

  Line read(const std::string& prompt) override {
    prompt_ = prompt;
    int count = 0;
    errno = 0;
    const char* text = el_gets(editor_, &count);
    if (text == nullptr || count <= 0) {
      const bool interrupted = errno == EINTR;
      el_reset(editor_);
      std::fputc('\n', stdout);
      std::fflush(stdout);
      return {interrupted ? Line::Kind::kInterrupted : Line::Kind::kEnd, ""};
    }
    return {Line::Kind::kText, without_line_break({text, static_cast<std::size_t>(count)})};
  }

  void remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
  }

 private:
  static char* prompt_of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<TerminalReader*>(self)->prompt_.data();
  }

  std::string prompt_;
  History* history_;
  EditLine* editor_;
};

}  // namespace

std::unique_ptr<LineReader> LineReader::create() {
  if (console::interactive()) return std::make_unique<TerminalReader>();
  return std::make_unique<PipeReader>();
}

}  // namespace lily
