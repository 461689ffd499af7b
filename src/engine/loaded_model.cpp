#include "engine/loaded_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/memory.h"
#include "base/units.h"
#include "engine/generation_config.h"
#include "model/forward.h"

namespace lily {
namespace {

constexpr std::int64_t kDefaultMaxSeq = 32768;
constexpr std::int64_t kLeastMaxSeq = 8192;  // that a card is tried with

Result<GenerationConfig> read_generation_config(ModelFiles& files) {
  if (!files.contains("generation_config.json")) return GenerationConfig{};
  LILY_TRY(const auto text, files.text("generation_config.json"));
  auto parsed = parse_generation_config(text);
  if (!parsed.ok()) return std::move(parsed).error().in(files.label() + "/generation_config.json");
  return parsed;
}

std::vector<TokenId> stop_ids(const ModelConfig& config, const GenerationConfig& generation,
                              const Tokenizer* tokenizer) {
  std::vector<TokenId> eos = config.eos_token_ids;
  eos.insert(eos.end(), generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  if (tokenizer != nullptr) {
    if (const auto turn_end = tokenizer->added_token("<|im_end|>")) eos.push_back(*turn_end);
  }
  std::ranges::sort(eos);
  eos.erase(std::ranges::unique(eos).begin(), eos.end());
  return eos;
}

// The template is a file of its own, or in older checkpoints a field of tokenizer_config.json.
Result<ChatTemplate> find_chat_template(ModelFiles& files, bool assume_known) {
  if (files.contains("chat_template.jinja")) {
    LILY_TRY(const auto text, files.text("chat_template.jinja"));
    return ChatTemplate::recognise(text, assume_known);
  }
  if (files.contains("tokenizer_config.json")) {
    LILY_TRY(const auto text, files.text("tokenizer_config.json"));
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("chat_template") && json["chat_template"].is_string()) {
      return ChatTemplate::recognise(json["chat_template"].get_ref<const std::string&>(), assume_known);
    }
  }
  return fail(ErrorCode::kNotFound, "{}: no chat_template.jinja, and none in tokenizer_config.json",
              files.label());
}

// The cache's share goes to slots and pages three to one: a checkpoint brings a slot and shares most of its
// pages. It also uses what no sequence needs at the time.
BackendLimits limits_for(const ModelOptions& options, const Shapes& shapes, std::int64_t max_seq) {
  const auto pages_for = [](std::int64_t tokens) { return (tokens + kKvPageTokens - 1) / kKvPageTokens; };
  const std::int64_t running_pages =
      options.kv_tokens > 0 ? pages_for(options.kv_tokens) : pages_for(max_seq) * options.slots;
  const std::int64_t slot_bytes = shapes.slot_size() * std::int64_t{sizeof(float)};
  const std::int64_t page_bytes = shapes.page_size() * std::int64_t{sizeof(std::uint16_t)};  // or f32
  return {.kv_pages = running_pages + options.cache_bytes / 4 / page_bytes,
          .slots = options.slots + options.cache_bytes / 4 * 3 / slot_bytes,
          .max_rows = options.max_rows > 0 ? std::max(options.max_rows, options.slots) : 0};
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::open(const ModelOptions& options) {
  auto model = std::unique_ptr<LoadedModel>(new LoadedModel());
  LILY_TRY(auto files, ModelFiles::open(options.model));
  LILY_TRY(auto checkpoint, Checkpoint::open(files));
  model->name_ = files->name();
  model->checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint));
  LILY_TRY(model->weights_, load_weights(*model->checkpoint_));
  LILY_TRY_VOID(model->open_text(options));

  const ModelConfig& config = model->config();
  model->max_seq_ =
      options.max_seq > 0 ? options.max_seq : std::min(config.max_position_embeddings, kDefaultMaxSeq);
  if (model->max_seq_ > config.max_position_embeddings) {
    return fail(ErrorCode::kInvalidArgument, "max-seq {}: the model's limit is {} (max_position_embeddings)",
                model->max_seq_, config.max_position_embeddings);
  }
  if (options.kv_tokens > 0 && options.kv_tokens < model->max_seq_) {
    return fail(ErrorCode::kInvalidArgument, "kv-tokens {}: expected at least max-seq, {}", options.kv_tokens,
                model->max_seq_);
  }
  LILY_TRY(const BackendLimits limits, model->make_backend_for(options));
  LILY_TRY_VOID(model->plan_memory(options, limits));
  LILY_TRY_VOID(model->keep_in_memory(options));
  model->pool_ = std::make_unique<StatePool>(*model->backend_, limits);
  log::info("{}: {} layers on {}, {} sequence(s) of {} tokens", model->name_, model->shapes().layers,
            model->backend_->description(), options.slots, model->max_seq_);
  return model;
}

// A context that nobody named is the largest that a card has room for, from the model's limit down by halves.
Result<BackendLimits> LoadedModel::make_backend_for(const ModelOptions& options) {
  std::vector<std::int64_t> contexts;
  std::vector<BackendLimits> for_card;
  if (options.max_seq == 0 && options.kv_tokens == 0) {
    for (std::int64_t n = config().max_position_embeddings; contexts.empty() || n >= kLeastMaxSeq; n /= 2) {
      contexts.push_back(n);
      for_card.push_back(limits_for(options, shapes(), n));
    }
  }
  LILY_TRY(auto made, make_fitting_backend(options.backend, weights_, limits_for(options, shapes(), max_seq_),
                                           for_card));
  backend_ = std::move(made.backend);
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    if (for_card[i].kv_pages == made.limits.kv_pages) max_seq_ = contexts[i];
  }
  return made.limits;
}

Result<void> LoadedModel::plan_memory(const ModelOptions& options, const BackendLimits& limits) {
  const std::int64_t host = backend_->host_bytes();
  const std::int64_t pages = host > 0 ? limits.kv_pages * backend_->page_bytes() : 0;
  memory_plan_ = {.weights = weights_.stored_bytes().total(),
                  .fixed = host - pages,
                  .kv_token = host > 0 ? backend_->page_bytes() / kKvPageTokens : 0,
                  .sequences = options.kv_tokens > 0 ? 1 : options.slots,
                  .max_seq = options.kv_tokens > 0 ? options.kv_tokens : max_seq_,
                  .pooled = options.kv_tokens > 0};
  if (host == 0) return {};
  const std::int64_t available = usable_memory();
  LILY_TRY_VOID(check_memory(memory_plan_, available));
  log::info("{}: at most {}", name_, describe(memory_plan_));
  if (memory_plan_.weights > available) {
    log::warn(
        "{}: weights of {} do not fit this machine's memory of {}: they are read from disk again and again",
        name_, format_bytes(static_cast<double>(memory_plan_.weights)),
        format_bytes(static_cast<double>(available)));
  }
  return {};
}

Result<void> LoadedModel::keep_in_memory(const ModelOptions& options) {
  if (!options.prefault && !options.mlock) return {};
  ThreadPool pool(options.backend.threads > 0 ? options.backend.threads : available_cores());
  ModelFiles& files = checkpoint_->files();
  for (const std::string& name : files.names()) {
    if (!name.ends_with(".safetensors")) continue;
    LILY_TRY(const auto bytes, files.bytes(name));
    prefault(bytes, pool);
    if (!options.mlock) continue;
    auto locked = lock_in_memory(bytes);
    if (!locked.ok()) return std::move(locked).error().in("mlock: " + files.label() + "/" + name);
  }
  return {};
}

Result<void> LoadedModel::open_text(const ModelOptions& options) {
  ModelFiles& files = checkpoint_->files();
  vocab_end_ = static_cast<TokenId>(config().vocab_size);
  if (files.contains("tokenizer.json")) {
    LILY_TRY(const auto text, files.text("tokenizer.json"));
    auto parsed = Tokenizer::parse(text);
    if (!parsed.ok()) return std::move(parsed).error().in(files.label() + "/tokenizer.json");
    tokenizer_ = std::move(parsed).value();
    if (tokenizer_->end() > config().vocab_size) {
      return fail(ErrorCode::kCorrupt, "{}/tokenizer.json: has ids up to {}, config.json vocab_size is {}",
                  files.label(), tokenizer_->end() - 1, config().vocab_size);
    }
    vocab_end_ = tokenizer_->end();
  }
  chat_template_ = find_chat_template(files, options.assume_template);
  LILY_TRY(const GenerationConfig generation, read_generation_config(files));
  eos_ = stop_ids(config(), generation, tokenizer());
  if (tokenizer_) turn_start_ = tokenizer_->added_token("<|im_start|>");
  sampling_defaults_ = generation.sampling;
  return {};
}

std::int64_t next_chunk(std::int64_t position, std::int64_t remaining, std::int64_t chunk) {
  if (remaining <= chunk) return remaining;
  if (chunk < kPrefillGrid) return chunk;
  return chunk - (position + chunk) % kPrefillGrid;
}

Result<void> LoadedModel::prefill(Sequence& sequence, std::span<const TokenId> tokens, Logits wanted,
                                  std::vector<float>& logits, std::int64_t chunk,
                                  const std::function<bool(std::int64_t)>& progress) {
  if (chunk <= 0 || chunk > max_rows()) chunk = max_rows();
  const Phase phase = chunk == 1 ? Phase::kDecode : Phase::kPrefill;
  const std::int64_t vocab = shapes().vocab;
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t rows = wanted == Logits::kAll ? total : (wanted == Logits::kLast ? 1 : 0);
  logits.resize(static_cast<std::size_t>(rows * vocab));

  for (std::int64_t done = 0; done < total;) {
    const std::int64_t count = next_chunk(sequence.length(), total - done, chunk);
    const bool last = done + count == total;
    const Logits here = wanted == Logits::kLast && !last ? Logits::kNone : wanted;
    const auto part = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
    LILY_TRY(const Segment segment, sequence.extend(part, phase, here));
    const Batch batch{.segments = {segment}};
    const std::int64_t first_row = wanted == Logits::kAll ? done : 0;
    const auto out = std::span(logits).subspan(static_cast<std::size_t>(first_row * vocab),
                                               static_cast<std::size_t>(batch.logits_rows() * vocab));
    LILY_TRY_VOID(forward(*backend_, weights_, batch, out));
    sequence.advance();
    done += count;
    if (progress && !progress(done)) return fail(ErrorCode::kCancelled, "cancelled after {} tokens", done);
  }
  return {};
}

Result<void> LoadedModel::decode_greedy(std::span<Sequence> sequences, std::span<TokenId> tokens,
                                        std::vector<float>& scratch) {
  Batch batch;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    LILY_TRY(const Segment segment, sequences[i].extend(tokens.subspan(i, 1), Phase::kDecode, Logits::kLast));
    batch.segments.push_back(segment);
  }
  if (backend_->chooses()) {
    LILY_TRY_VOID(forward_greedy(*backend_, weights_, batch, tokens, vocab_end_));
  } else {
    const auto vocab = static_cast<std::size_t>(shapes().vocab);
    scratch.resize(vocab * sequences.size());
    LILY_TRY_VOID(forward(*backend_, weights_, batch, scratch));
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto row = std::span(scratch).subspan(i * vocab, static_cast<std::size_t>(vocab_end_));
      tokens[i] = static_cast<TokenId>(std::ranges::max_element(row) - row.begin());
    }
  }
  for (Sequence& sequence : sequences) sequence.advance();
  return {};
}

}  // namespace lily
