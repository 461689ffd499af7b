// The contract between the model and the machines that run it.
//
// A backend holds one loaded model and the states of its sequences, and implements the five blocks that
// forward.cpp calls in order. Activations live in the backend: a step starts with begin(), each block
// transforms the residual stream [rows, H], head() ends it. Inside a block a backend does as it likes; it may
// also carry a pending norm or residual across a block boundary. The reference backend defines what every
// block must compute.
//
// One thread calls a backend. Rows of a step never influence each other except through their own sequence's
// state: the same segment gives the same bits alone and in company.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "model/shapes.h"
#include "model/weights.h"

namespace lily {

/// One page: K and V rows of kKvPageTokens consecutive positions, for every full-attention layer.
using PageId = std::int32_t;
/// One slot: the recurrent state and convolution window of one sequence, for every gated-delta layer.
using SlotId = std::int32_t;

/// Which rows of a segment want logits.
enum class Logits { kNone, kLast, kAll };

/// Which kernels a segment's rows go through. They may round differently, so the choice belongs to the
/// segment and never to its length, to the batch, or to how many tokens an expert got: a prompt's last chunk
/// is prefill even when one token is left of it.
enum class Phase {
  kPrefill,  ///< any number of rows
  kDecode,   ///< one row
};

/// Consecutive new tokens of one sequence.
struct Segment {
  std::span<const TokenId> tokens;
  std::int64_t position = 0;  ///< absolute position of tokens[0]; the state holds exactly this many tokens
  std::span<const PageId>
      pages;         ///< pages[p / kKvPageTokens] holds position p, up to position + tokens.size()
  SlotId slot = -1;  ///< advanced in place
  Phase phase = Phase::kPrefill;
  Logits logits = Logits::kLast;

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(tokens.size()); }
};

/// What one step runs: segments of different sequences, in any mixture of prefill and decode.
struct Batch {
  std::vector<Segment> segments;

  [[nodiscard]] std::int64_t rows() const;         ///< all new tokens
  [[nodiscard]] std::int64_t logits_rows() const;  ///< rows that want logits
};

struct EmbedBlock {
  const QuantizedMatrix& embed_tokens;  ///< [V, H]
};

struct RecurrentBlock {
  int layer = 0;         ///< index in the model
  int linear_index = 0;  ///< index among the gated-delta layers, selects the state
  const RecurrentWeights& weights;
};

struct AttentionBlock {
  int layer = 0;            ///< index in the model
  int attention_index = 0;  ///< index among the full-attention layers, selects the K/V rows
  const AttentionWeights& weights;
};

struct MoeBlock {
  int layer = 0;
  const MoeWeights& weights;
};

/// What the dense members of the family have in place of MoeBlock.
struct MlpBlock {
  int layer = 0;
  const MlpWeights& weights;
};

/// The logits of a row that may matter to a sampler: every id below the end whose logit is above `above`, in
/// no order. Empty, and `above` infinite, where a logit is no number.
struct Candidate {
  TokenId id;
  float logit;
};
struct Candidates {
  std::vector<Candidate> list;
  float above = 0;
};

struct HeadBlock {
  const Vector& norm;              ///< [H]
  const QuantizedMatrix& lm_head;  ///< [V, H]
  std::span<float> logits;         ///< out, [batch.logits_rows(), V], in the order of the segments
  /// Out, in place of `logits` where a backend chooses(): the likeliest id below `best_end` of each row, the
  /// lowest among equals, -1 where no logit is a number.
  std::span<TokenId> best = {};
  /// Out, in place of both where a backend lists candidates (candidate_rows()): a row each.
  std::span<Candidates> candidates = {};
  TokenId best_end = 0;
};

/// What a backend may use, fixed at load. Pages and slots are numbered from 0.
struct BackendLimits {
  std::int64_t kv_pages = 0;
  std::int64_t slots = 0;
  std::int64_t max_rows = 0;  ///< of a step; 0: what suits the backend, and a row for each slot
};

struct BackendOptions {
  std::string name = "auto";  ///< auto, cpu, cuda, metal, metal-emulated, reference
  bool exact = false;         ///< cpu: f32 activations in place of integers
  int threads = 0;            ///< cpu: 0 for all physical cores this process may use
  std::string isa = "auto";   ///< cpu: auto, generic, avx2, avx512, avx512bf16, amx, neon
  /// How K and V rows are kept: auto, f32, bf16 or q8. cpu: auto is bf16, with `exact` f32; the reference
  /// keeps f32.
  std::string kv_type = "auto";
  bool pin_threads = false;  ///< cpu: a worker stays on its core
  /// One of the backend's ablations() by its name, to be done without; empty: none. For measurements alone.
  std::string without = {};
};

/// An optimisation that a backend can do without, so that `lily ablate` can say what it is worth.
struct Ablation {
  std::string name;  ///< "threads", for BackendOptions::without
  std::string what;  ///< what is there in its place: "1 thread in place of 8"
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// For logs and `lily devices`: "cpu (AVX-512 VNNI, 2 threads, integer activations)".
  [[nodiscard]] virtual std::string description() const = 0;

  /// What it can do without as it was made, each on its own.
  [[nodiscard]] virtual std::vector<Ablation> ablations() const { return {}; }

  /// Rows that a step may have: the limit it was made with, or its own choice.
  [[nodiscard]] virtual std::int64_t max_rows() const = 0;

  /// Multiply-adds a second that registers reach with the instruction of this backend's products, on what a
  /// step runs on: the bound of prompts. Measured by the call; none where a backend cannot.
  [[nodiscard]] virtual std::optional<double> measure_arithmetic() { return std::nullopt; }

  /// Starts a step. CHECKs that it fits the limits; every slot's state must match its segment's position.
  virtual void begin(const Batch& batch) = 0;
  virtual void embed(const EmbedBlock& block) = 0;
  virtual void recurrent_block(const RecurrentBlock& block) = 0;
  virtual void attention_block(const AttentionBlock& block) = 0;
  virtual void moe_block(const MoeBlock& block) = 0;
  virtual void mlp_block(const MlpBlock& block) = 0;
  virtual void head(const HeadBlock& block) = 0;
  /// Whether head() fills HeadBlock::best: where logits lie far from the host, greedy decoding need not wait
  /// for them.
  [[nodiscard]] virtual bool chooses() const { return false; }
  /// Rows of a step for which head() fills HeadBlock::candidates, and read_logits() answers afterwards; 0:
  /// none.
  [[nodiscard]] virtual std::int64_t candidate_rows() const { return 0; }
  /// All logits [V] of the step's `row`-th row that wanted them, where head() has listed candidates.
  virtual void read_logits(std::int64_t row, std::span<float> out);
  /// Waits for the step and says whether the device did it.
  virtual Result<void> finish() = 0;

  /// The residual stream between blocks, [rows, H]: for tests that compare layer by layer.
  virtual void read_residual(std::span<float> out) = 0;

  /// State, by value. A slot is zeroed before its first use; copying is how snapshots and forks are made. A
  /// page's rows beyond a sequence's length are never read, so pages need no clearing.
  virtual void zero_slot(SlotId slot) = 0;
  virtual void copy_slot(SlotId from, SlotId to) = 0;
  virtual void copy_page(PageId from, PageId to) = 0;
  /// Bytes of this machine's memory that the backend takes beside the weights once every page and slot is
  /// used; 0 where they are a device's.
  [[nodiscard]] virtual std::int64_t host_bytes() const { return 0; }
  /// Host copies, for saving to disk and for tests. Sizes: slot_bytes(), page_bytes().
  [[nodiscard]] virtual std::int64_t slot_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t page_bytes() const = 0;
  virtual void read_slot(SlotId slot, std::span<std::byte> out) = 0;
  virtual void write_slot(SlotId slot, std::span<const std::byte> in) = 0;
  virtual void read_page(PageId page, std::span<std::byte> out) = 0;
  virtual void write_page(PageId page, std::span<const std::byte> in) = 0;
  /// Gives the memory of an unused page or slot back to the system where that is possible; contents are lost.
  virtual void release_page(PageId /*page*/) {}
  virtual void release_slot(SlotId /*slot*/) {}
};

/// Loads `weights` into the backend named in `options`. A backend left out of this build is an error that
/// says so; `auto` takes the best that works and logs why the better ones did not. `weights` must outlive the
/// backend.
Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options, const ModelWeights& weights,
                                              const BackendLimits& limits);

/// The same where the caller leaves the number of K/V pages open. A card with memory of its own takes the
/// first of `for_card` that fits there, any other backend `limits`.
struct FittedBackend {
  std::unique_ptr<Backend> backend;
  BackendLimits limits;  ///< those that were taken
};
Result<FittedBackend> make_fitting_backend(const BackendOptions& options, const ModelWeights& weights,
                                           const BackendLimits& limits,
                                           std::span<const BackendLimits> for_card);

/// Names that make_backend takes in this build, best first, without "auto".
std::vector<std::string> available_backends();

/// One maker per backend; a backend left out of the build links a stub that returns kUnsupported.
Result<std::unique_ptr<Backend>> make_reference_backend(const ModelWeights&, const BackendLimits&);
Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions&, const ModelWeights&,
                                                  const BackendLimits&);
Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions&, const ModelWeights&,
                                                   const BackendLimits&);
Result<std::unique_ptr<Backend>> make_metal_backend(const BackendOptions&, const ModelWeights&,
                                                    const BackendLimits&);

/// Whether this build holds the backend and not its stub. `name`: "metal" or "metal-emulated".
[[nodiscard]] bool has_cuda_backend();
[[nodiscard]] bool has_metal_backend(std::string_view name);

}  // namespace lily
