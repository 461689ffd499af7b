// lily chat: a conversation in the terminal.
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "cli/answer.h"
#include "cli/chat_command.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/line_reader.h"
#include "cli/open.h"
#include "cli/prompt.h"

namespace lily {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

class Conversation {
 public:
  Conversation(Engine& engine, const Options& options)
      : engine_(engine), reader_(LineReader::create()), options_(options) {
    if (console::interactive()) interrupt_.emplace();
  }

  Result<void> run();

 private:
  /// A message or a command, whole; nullopt when the user leaves.
  std::optional<std::string> read_entry();
  Result<void> obey(const ChatCommand& command);
  Result<void> say(const std::string& text);
  /// Answers the messages so far; takes the last one back if there is no answer at all.
  Result<void> answer();
  Result<void> retry();
  [[nodiscard]] nlohmann::ordered_json messages() const;
  Result<void> save(const std::string& file) const;

  /// Whether Ctrl-C came since this was asked last.
  bool take_interrupt();
  [[nodiscard]] Result<GenerateRequest> next_request();

  Engine& engine_;
  std::unique_ptr<LineReader> reader_;
  std::optional<Interrupt> interrupt_;  // in a pipe Ctrl-C ends the program, as it does any filter
  nlohmann::ordered_json turns_ = nlohmann::ordered_json::array();  // user and assistant messages
  Options options_;                                                 // as the user has changed them
  std::uint64_t answers_ = 0;
  bool warned_ = false;  // the last thing the user did was Ctrl-C
  bool left_ = false;
};

std::optional<std::string> Conversation::read_entry() {
  std::string entry;
  bool quoted = false;
  for (;;) {
    const Line line = reader_->read(quoted ? ". " : "> ");
    if (line.kind == Line::Kind::kEnd) return entry.empty() ? std::nullopt : std::optional(entry);
    if (line.kind == Line::Kind::kInterrupted) {
      take_interrupt();
      if (warned_) return std::nullopt;
      warned_ = true;
      fmt::print(stderr, "{}\n", console::dim("(Ctrl-C again or Ctrl-D to leave)"));
      entry.clear();
      quoted = false;
      continue;
    }
    if (line.text == kQuotes) {
      if (quoted) return entry;
      quoted = true;
    } else if (quoted) {
      entry += entry.empty() ? line.text : "\n" + line.text;
    } else {
      return line.text;
    }
  }
}

// On a terminal an error is shown and the conversation goes on; in a pipe nobody would see it, so it ends
// there.
Result<void> Conversation::run() {
  if (interrupt_) {
    LILY_TRY_VOID(console::print(fmt::format(
        "{}\n",
        console::dim(fmt::format("{}: /help lists the commands, Ctrl-D leaves", engine_.model().name())))));
  }
  while (!left_) {
    const auto entry = read_entry();
    if (!entry) return {};
    if (entry->find_first_not_of(" \t\n") == std::string::npos) continue;
    warned_ = false;
    reader_->remember(*entry);
    const auto done = say(*entry);
    if (done.ok()) continue;
    if (!interrupt_) return done.error();
    fmt::print(stderr, "lily: {}\n", done.error().message);
  }
  return {};
}

Result<void> Conversation::say(const std::string& text) {
  if (is_chat_command(text)) {
    LILY_TRY(const ChatCommand command, parse_chat_command(text));
    return obey(command);
  }
  turns_.push_back({{"role", "user"}, {"content", text}});
  return answer();
}

Result<void> Conversation::obey(const ChatCommand& command) {
  switch (command.kind) {
    case ChatCommand::Kind::kHelp:
      return console::print(chat_help());
    case ChatCommand::Kind::kClear:
      turns_.clear();
      return {};
    case ChatCommand::Kind::kThink:
      options_.think = command.on;
      return {};
    case ChatCommand::Kind::kSystem:
      options_.system = command.argument;
      return {};
    case ChatCommand::Kind::kSet:
      if (!command.argument.empty()) return set_generation(command.argument, options_);
      return console::print(format_generation(sampling_params(options_, engine_.model()), options_));
    case ChatCommand::Kind::kRetry:
      return retry();
    case ChatCommand::Kind::kSave:
      return save(command.argument);
    case ChatCommand::Kind::kQuit:
      left_ = true;
      return {};
  }
  return {};
}

Result<void> Conversation::retry() {
  if (!turns_.empty() && turns_.back()["role"] == "assistant") turns_.erase(turns_.size() - 1);
  if (turns_.empty()) return fail(ErrorCode::kInvalidArgument, "/retry: there is no message to answer yet");
  return answer();
}

Result<GenerateRequest> Conversation::next_request() {
  GenerateRequest request;
  LILY_TRY(request.prompt, chat_prompt(engine_.model(), messages(), options_.think));
  request.sampling = sampling_params(options_, engine_.model());
  request.sampling.seed += answers_++;  // a retry differs, and equal --seeds give equal conversations
  request.max_tokens = options_.max_tokens;
  return request;
}

Result<void> Conversation::answer() {
  AnswerText text(console::styled());
  const auto sink = [&](TokenId id, const OutputDelta& delta) {
    std::string out = text.add(delta);
    if (id < 0) out += text.finish() + "\n";
    return console::print(out);
  };
  const auto stream = [&]() -> Result<Answer> {
    LILY_TRY(GenerateRequest request, next_request());
    return stream_answer(engine_, std::move(request), interrupt_ ? &*interrupt_ : nullptr, sink);
  };
  take_interrupt();
  const auto answer = stream();
  if (!answer.ok()) {
    turns_.erase(turns_.size() - 1);
    return answer.error();
  }
  turns_.push_back({{"role", "assistant"}, {"content", answer->content}});
  if (!answer->reasoning.empty()) turns_.back()["reasoning_content"] = answer->reasoning;
  warned_ = take_interrupt();
  return interrupt_ ? console::print(console::dim(format_summary(*answer)) + "\n") : Result<void>{};
}

bool Conversation::take_interrupt() {
  const bool pending = interrupt_ && interrupt_->pending();
  if (pending) interrupt_->clear();
  return pending;
}

nlohmann::ordered_json Conversation::messages() const {
  auto all = nlohmann::ordered_json::array();
  const std::string system = options_.system.value_or("");
  if (!system.empty()) all.push_back({{"role", "system"}, {"content", system}});
  for (const auto& turn : turns_) all.push_back(turn);
  return all;
}

Result<void> Conversation::save(const std::string& file) const {
  return write_file(file, json_document(messages()));
}

}  // namespace

Result<void> run_chat(const Options& options) {
  LILY_TRY(const auto engine, open_engine(options, options.cache_mib << 20));
  LILY_TRY_VOID(require_tokenizer(engine->model()));
  if (!engine->model().chat_template().ok()) return engine->model().chat_template().error();
  return Conversation(*engine, options).run();
}

}  // namespace lily
