#include "cli/eval_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/mmap.h"
#include "base/npy.h"
#include "cli/console.h"
#include "cli/open.h"

namespace lily {
namespace {

Result<std::string> read_text(const std::string& path) {
  if (path == "-") return console::read_stdin();
  LILY_TRY(const MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

// The "text" of every line.
Result<std::vector<std::string>> read_prompts(const std::string& path) {
  LILY_TRY(const std::string file, read_text(path));
  std::vector<std::string> prompts;
  std::size_t number = 0;
  for (std::size_t at = 0; at < file.size(); ++number) {
    const std::size_t end = std::min(file.find('\n', at), file.size());
    const std::string line = file.substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto text = json.is_object() ? json.find("text") : json.end();
    if (text == json.end() || !text->is_string()) {
      return fail(ErrorCode::kInvalidArgument, R"({}: line {}: expected {{"text": "..."}}, found '{}')", path,
                  number + 1, line.substr(0, 80));
    }
    prompts.push_back(text->get<std::string>());
  }
  return prompts;
}

Result<void> check_lengths(const EvalTexts& texts) {
  if (texts.ids.empty()) {
    return fail(ErrorCode::kInvalidArgument, "eval: expected at least one prompt, found none");
  }
  for (const std::vector<TokenId>& ids : texts.ids) {
    if (ids.size() >= 2) continue;
    return fail(ErrorCode::kInvalidArgument, "eval: expected a text of at least 2 tokens, found {}",
                ids.size());
  }
  return {};
}

}  // namespace

std::int64_t EvalTexts::tokens() const {
  std::int64_t sum = 0;
  for (const auto& text : ids) sum += std::ssize(text);
  return sum;
}

std::int64_t EvalTexts::longest() const {
  return std::ssize(*std::ranges::max_element(ids, {}, [](const auto& text) { return text.size(); }));
}

Result<EvalTexts> read_eval_texts(const Options& options) {
  const auto given = [](const std::string& file) { return file.empty() ? 0 : 1; };
  const int files = given(options.text_file) + given(options.ids_file) + given(options.prompts_file);
  if (files != 1) {
    return fail(ErrorCode::kInvalidArgument,
                "eval: expected one of --text F, --prompts F.jsonl and --ids-file F.npy, found {}",
                files == 0 ? "none" : "several");
  }
  EvalTexts texts;
  if (!options.ids_file.empty()) {
    LILY_TRY(auto ids, read_npy_ids(options.ids_file));
    texts.ids.push_back(std::move(ids));
  } else {
    LILY_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
    if (!options.text_file.empty()) {
      LILY_TRY(const std::string text, read_text(options.text_file));
      texts.ids.push_back(tokenizer.encode(text));
    } else {
      LILY_TRY(texts.prompts, read_prompts(options.prompts_file));
      for (const std::string& prompt : texts.prompts) texts.ids.push_back(tokenizer.encode(prompt));
    }
  }
  LILY_TRY_VOID(check_lengths(texts));
  return texts;
}

}  // namespace lily
