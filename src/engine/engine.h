// The engine: one thread that owns the device, a bounded queue of requests in front of it, a stream of tokens
// behind. What programs include; everything is thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/loaded_model.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine/token_guide.h"

namespace lily {

struct GenerateRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::int64_t max_tokens = 0;  ///< 0: as many as fit; more than fit is clamped
  bool ignore_eos = false;      ///< go on past the model's stop ids (benchmarks)
  bool logprobs = false;
  int top_logprobs = 0;                         ///< 0..20
  std::shared_ptr<TokenGuide> guide = nullptr;  ///< what may be sampled; null: anything
  std::chrono::milliseconds timeout{0};         ///< from submit() to the last token; 0: none
};

enum class FinishReason {
  kStop,       ///< a stop id was sampled (it is not among the tokens)
  kLength,     ///< max_tokens or the context is used up
  kCancelled,  ///< the consumer or a shutdown ended it
  kTimeout,    ///< its deadline passed
  kError,      ///< the device failed; error() says how
};

/// "stop", "length", "cancelled", "timeout" or "error".
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason);

/// What an engine has done so far.
struct EngineWork {
  std::int64_t steps = 0;
  std::int64_t prompt_tokens = 0;  ///< evaluated, so without those from the cache
  std::int64_t generated_tokens = 0;
};

/// Counts of one finished or running generation.
struct GenerationUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      ///< of the prompt, taken from the prefix cache
  std::int64_t completion_tokens = 0;  ///< sampled, the stop id included
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

/// The consumer's end of one request. Destroying the last handle cancels it.
class Generation {
 public:
  /// The next token; nullopt once finished. Blocks; with a timeout it also returns nullopt when time is up
  /// (then finished() is false).
  std::optional<Sampled> next();
  std::optional<Sampled> next_for(std::chrono::milliseconds timeout);

  /// Takes effect within one step, whether queued, prefilling or decoding. Tokens already made stay readable.
  void cancel();

  [[nodiscard]] bool finished() const;               ///< no token is left to read and none will come
  [[nodiscard]] FinishReason finish_reason() const;  ///< meaningful once finished
  [[nodiscard]] Error error() const;                 ///< for kError
  [[nodiscard]] GenerationUsage usage() const;
  [[nodiscard]] std::int64_t prefilled() const;  ///< prompt tokens done so far, for progress

 private:
  friend class Task;
  std::optional<Sampled> take();

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Sampled> tokens_;
  std::optional<FinishReason> reason_;
  Error error_;
  GenerationUsage usage_;
  std::int64_t prefilled_ = 0;
  bool cancelled_ = false;
};

struct EngineOptions {
  ModelOptions model;
  std::int64_t max_queue = 64;           ///< requests waiting; one more is kExhausted
  std::chrono::milliseconds timeout{0};  ///< longest that any request may take; 0: any time
  /// Where the prefix cache outlives the process; empty: nowhere. A file that is damaged or belongs to
  /// another model is set aside as FILE.refused, with a warning.
  std::filesystem::path cache_file = {};
};

class Scheduler;
class Task;

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();  ///< cancels what runs and joins the thread

  /// Queues a request. kInvalidArgument for a prompt that is empty, holds an id outside the vocabulary or
  /// does not fit the context (both numbers named); kExhausted when the queue is full; kCancelled after
  /// drain().
  Result<std::shared_ptr<Generation>> submit(GenerateRequest request);

  /// Refuses new requests and waits until those in hand are finished, or cancels them at the deadline.
  void drain(std::chrono::milliseconds deadline);

  /// Writes the prefix cache to the options' cache_file, if there is one, between two steps.
  Result<void> save_cache();

  /// The model, for its tokenizer, template and limits. Its device belongs to the engine thread.
  [[nodiscard]] const LoadedModel& model() const { return *model_; }

  struct Stats {
    std::int64_t queued = 0;
    std::int64_t running = 0;
    std::int64_t finished = 0;
    std::int64_t refused = 0;  ///< found the queue full
    EngineWork work = {};
    std::int64_t kv_pages = 0;
    std::int64_t free_kv_pages = 0;
    PrefixCache::Stats cache = {};
  };
  [[nodiscard]] Stats stats() const;

  /// Called with every accepted request's end. It must not call the engine.
  using Observer = std::function<void(FinishReason, const GenerationUsage&)>;
  void observe(Observer observer);

 private:
  using Queue = std::deque<std::unique_ptr<Task>>;

  Engine();
  [[nodiscard]] Result<void> check(const GenerateRequest& request) const;
  void drop_abandoned();
  void count(const Task& task);

  void load_cache();

  // The engine thread.
  void run();
  void do_save();
  bool wait_for_work();
  void admit();
  void publish();

  std::unique_ptr<LoadedModel> model_;
  std::int64_t max_queue_ = 0;
  std::chrono::milliseconds timeout_{0};
  std::filesystem::path cache_file_;
  std::unique_ptr<Scheduler> scheduler_;  // engine thread only

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Queue queue_;
  Stats stats_;  // all but `queued`
  Observer observer_;
  std::optional<std::promise<Result<void>>> save_;  // somebody waits for the cache to be written
  bool draining_ = false;
  bool cancel_all_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lily
