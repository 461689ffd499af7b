// Memory, state and the course of a step. What the blocks do is in blocks.cpp.
#include "backend/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/log.h"
#include "model/kv_type.h"

namespace lily::cuda {
namespace {

constexpr double kGiB = 1 << 30;

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / kGiB;
}

constexpr const char* kGraph = "graph";
constexpr const char* kOverlap = "programmatic-launch";
constexpr const char* kChoice = "choice-on-the-card";
constexpr const char* kWgmma = "wgmma";
constexpr const char* kRouting = "routing-on-the-card";
constexpr const char* kChunks = "chunked-delta-rule";
constexpr const char* kHeads = "shared-rows";

std::size_t bytes_of(std::int64_t count, std::size_t size) {
  return static_cast<std::size_t>(count) * size;
}

}  // namespace

Result<std::unique_ptr<Backend>> CudaBackend::create(const ModelWeights& weights, const BackendLimits& limits,
                                                     const std::string& without) {
  LILY_TRY(OpenDevice device, open_device());
  LILY_TRY_VOID(check_supported(weights));
  LILY_TRY(Stream stream, Stream::create());
  auto backend =
      std::unique_ptr<CudaBackend>(new CudaBackend(weights, limits, std::move(device), std::move(stream)));
  LILY_TRY_VOID(backend->leave_out(without));
  LILY_TRY(backend->prefill_, RowBlock::create(limits.max_rows, limits.slots, limits.kv_pages));
  LILY_TRY(backend->decode_, RowBlock::create(limits.slots, limits.slots, limits.kv_pages));
  LILY_TRY_VOID(backend->allocate());
  LILY_TRY_VOID(backend->send_frequencies());
  return std::unique_ptr<Backend>(std::move(backend));
}

CudaBackend::CudaBackend(const ModelWeights& weights, const BackendLimits& limits, OpenDevice device,
                         Stream stream)
    : weights_(weights),
      s_(weights.shapes),
      limits_(limits),
      device_(std::move(device)),
      stream_(std::move(stream)),
      slot_floats_(s_.linear_layers * (s_.recurrent_state_size() + kConvRing * s_.conv_channels())),
      page_values_(s_.attention_layers * 2 * kKvPageTokens * s_.kv_dim()) {}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(stream_.get());
  for (const auto& kind : graphs_) {
    for (const Graph& graph : kind) {
      if (graph.graph != nullptr) cudaGraphExecDestroy(graph.graph);
    }
  }
}

// What loading kernels and recording graphs takes later.
constexpr std::int64_t kReserve = std::int64_t{256} << 20;

// Everything is measured before anything is allocated, so that too little memory is told in one message.
Result<void> CudaBackend::allocate() {
  Layout weight_plan;
  const DeviceWeights measured(weights_, weight_plan);
  const StepLimits limits{.prefill_rows = limits_.max_rows, .decode_rows = limits_.slots};
  Layout scratch_plan;
  (void)Scratch::place(scratch_plan, s_, measured, limits);
  const std::int64_t slots = limits_.slots * slot_bytes();
  const std::int64_t pages = limits_.kv_pages * page_bytes();
  const std::int64_t needed = weight_plan.used() + scratch_plan.used() + slots + pages;
  const std::string plan =
      fmt::format("{:.2f} GiB: weights {:.2f}, K/V pages {:.2f}, recurrent states {:.2f}, scratch {:.2f}",
                  gib(needed), gib(weight_plan.used()), gib(pages), gib(slots), gib(scratch_plan.used()));
  if (needed + kReserve > device_.free_bytes) {
    return fail(ErrorCode::kExhausted,
                "cuda: {} has {:.2f} GiB free, needed are {}; a lower --max-seq or --slots needs less",
                device_.name, gib(device_.free_bytes), plan);
  }
  log::info("cuda: {} of {:.2f} GiB free", plan, gib(device_.free_bytes));

  constexpr auto kDevice = Memory::Kind::kDevice;
  LILY_TRY(weight_memory_, Memory::allocate(kDevice, weight_plan.used(), "weights"));
  LILY_TRY(state_memory_, Memory::allocate(kDevice, slots + pages, "states"));
  LILY_TRY(scratch_memory_, Memory::allocate(kDevice, scratch_plan.used(), "scratch"));
  LILY_TRY(
      pinned_logits_,
      Memory::allocate(Memory::Kind::kPinned,
                       kLogitsRows * std::max<std::int64_t>(s_.vocab * 4, sizeof(RowCandidates)), "logits"));
  slots_ = reinterpret_cast<float*>(state_memory_.data());
  pages_ = reinterpret_cast<__nv_bfloat16*>(state_memory_.data() + slots);
  Layout scratch(scratch_memory_.data());
  scratch_ = Scratch::place(scratch, s_, measured, limits);

  const auto start = std::chrono::steady_clock::now();
  Layout placed(weight_memory_.data());
  device_weights_ = std::make_unique<DeviceWeights>(weights_, placed);
  LILY_TRY_VOID(load(device_.device, weights_, *device_weights_, weight_memory_, weight_plan.used()));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  log::info("cuda: weights on the card after {:.1f} s", seconds.count());
  return {};
}

Result<void> CudaBackend::send_frequencies() {
  std::array<double, kRotary / 2> frequencies{};
  for (std::size_t j = 0; j < frequencies.size(); ++j)
    frequencies[j] = std::pow(s_.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(kRotary));
  copy_to_device(scratch_.frequencies, std::as_bytes(std::span(frequencies)));
  return take_error();
}

std::string CudaBackend::description() const {
  return fmt::format("cuda ({}, {} multiprocessors)", device_.name, device_.device.multiprocessors);
}

std::vector<Ablation> CudaBackend::ablations() const {
  std::vector<Ablation> list;
  if (graphs_allowed_) list.push_back({kGraph, "every kernel of a decoding step launched by the host"});
  if (device_.device.overlap) list.push_back({kOverlap, "a kernel starts when the one before it has ended"});
  if (chooses_) list.push_back({kChoice, "a greedy step's logits copied to the host"});
  if (device_.device.hopper) list.push_back({kWgmma, "prompts' products and attention by mma.sync"});
  if (!ways_.host_routing && s_.experts > 0)
    list.push_back({kRouting, "prompts' router logits copied to the host, which chooses the experts"});
  if (!ways_.sequential_delta) list.push_back({kChunks, "prompts through the delta rule token by token"});
  if (!ways_.heads_apart)
    list.push_back({kHeads, "each query head of a decoding row reads K and V for itself"});
  return list;
}

Result<void> CudaBackend::leave_out(const std::string& ablation) {
  if (ablation == kGraph) {
    graphs_allowed_ = false;
  } else if (ablation == kOverlap) {
    device_.device.overlap = false;
  } else if (ablation == kChoice) {
    chooses_ = false;
  } else if (ablation == kWgmma) {
    device_.device.hopper = false;
  } else if (ablation == kRouting) {
    ways_.host_routing = true;
  } else if (ablation == kChunks) {
    ways_.sequential_delta = true;
  } else if (ablation == kHeads) {
    ways_.heads_apart = true;
  } else if (!ablation.empty()) {
    return fail(ErrorCode::kInvalidArgument, "cuda: without '{}': expected one of its ablations", ablation);
  }
  return {};
}

void CudaBackend::check(const Segment& segment) const {
  LILY_CHECK(segment.phase == Phase::kPrefill || segment.rows() == 1, "decoding {} rows", segment.rows());
  LILY_CHECK(segment.slot >= 0 && segment.slot < limits_.slots, "slot {} of {}", segment.slot, limits_.slots);
  const std::int64_t needed = (segment.position + segment.rows() + kKvPageTokens - 1) / kKvPageTokens;
  LILY_CHECK(static_cast<std::int64_t>(segment.pages.size()) >= needed, "{} pages for {} tokens",
             segment.pages.size(), segment.position + segment.rows());
  for (const PageId page : segment.pages)
    LILY_CHECK(page >= 0 && page < limits_.kv_pages, "page {} of {}", page, limits_.kv_pages);
  for (const TokenId token : segment.tokens)
    LILY_CHECK(token >= 0 && token < s_.vocab, "token {} of {}", token, s_.vocab);
}

void CudaBackend::begin(const Batch& batch) {
  LILY_CHECK(batch.rows() <= limits_.max_rows, "step of {} rows, limit {}", batch.rows(), limits_.max_rows);
  batch_ = batch;
  prefill_.clear();
  decode_.clear();
  first_rows_.clear();
  recorded_.clear();
  for (const Segment& segment : batch.segments) {
    check(segment);
    if (segment.rows() > 0) (segment.phase == Phase::kPrefill ? prefill_ : decode_).add(segment);
  }
  std::int64_t prefill_row = 0;
  std::int64_t decode_row = prefill_.rows();
  for (const Segment& segment : batch.segments) {
    std::int64_t& next = segment.phase == Phase::kPrefill ? prefill_row : decode_row;
    first_rows_.push_back(next);
    for (std::int64_t i = 0; i < segment.rows(); ++i) {
      if (segment.logits == Logits::kAll || (segment.logits == Logits::kLast && i + 1 == segment.rows()))
        prefill_.want(next + i);
    }
    next += segment.rows();
  }
  if (decode_rows() > 0) decode_.send(stream_.get());
  recording_ = graphs_allowed_ && prefill_rows() == 0 && decode_rows() > 0 && decode_rows() <= kGraphRows &&
               batch.logits_rows() == decode_rows();
  if (!recording_) prefill_.send(stream_.get());
}

void CudaBackend::stop_recording() {
  if (!recording_) return;
  prefill_.send(stream_.get());  // which rows' logits are wanted: a graph takes all
  run_recorded();
}

void CudaBackend::run(std::function<void()> work) {
  if (recording_) {
    recorded_.push_back(std::move(work));
  } else {
    work();
  }
}

void CudaBackend::run_recorded() {
  recording_ = false;
  for (const auto& work : recorded_) work();
  recorded_.clear();
}

// A graph is recorded at the second step of its size, when all its kernels are loaded. A step's inputs are
// read from fixed places, so it fits every later one.
void CudaBackend::replay(Wanted wanted) {
  Graph& graph = graphs_[static_cast<std::size_t>(wanted)][static_cast<std::size_t>(decode_rows())];
#ifdef LILY_CUDA_EMULATED
  graph.warm = false;  // runs at once
#endif
  if (!graph.warm) {
    graph.warm = true;
    return run_recorded();
  }
  if (graph.graph == nullptr) {
    cudaGraph_t captured = nullptr;
    note_error(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "recording a graph");
    run_recorded();
    note_error(cudaStreamEndCapture(stream_.get(), &captured), "recording a graph");
    if (captured == nullptr) return;
    note_error(cudaGraphInstantiate(&graph.graph, captured, 0), "making a graph");
    cudaGraphDestroy(captured);
  }
  recording_ = false;
  recorded_.clear();
  note_error(cudaGraphLaunch(graph.graph, stream_.get()), "launching a graph");
}

Result<void> CudaBackend::finish() {
  stop_recording();
  note_error(cudaStreamSynchronize(stream_.get()), "running a step");
  return take_error();
}

void CudaBackend::read_residual(std::span<float> out) {
  stop_recording();
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == batch_.rows() * s_.hidden, "{} floats for {} rows",
             out.size(), batch_.rows());
  for (std::size_t i = 0; i < batch_.segments.size(); ++i) {
    const auto count = static_cast<std::size_t>(batch_.segments[i].rows() * s_.hidden);
    copy_to_host(std::as_writable_bytes(out.first(count)), scratch_.residual + first_rows_[i] * s_.hidden);
    out = out.subspan(count);
  }
}

void CudaBackend::copy_to_host(std::span<std::byte> out, const void* from) {
  note_error(cudaMemcpyAsync(out.data(), from, out.size(), cudaMemcpyDeviceToHost, stream_.get()),
             "copying to the host");
  note_error(cudaStreamSynchronize(stream_.get()), "copying to the host");
}
void CudaBackend::copy_to_device(void* to, std::span<const std::byte> in) {
  note_error(cudaMemcpyAsync(to, in.data(), in.size(), cudaMemcpyHostToDevice, stream_.get()),
             "copying to the card");
  note_error(cudaStreamSynchronize(stream_.get()), "copying to the card");
}

void CudaBackend::zero_slot(SlotId slot) {
  note_error(cudaMemsetAsync(slots_ + slot * slot_floats_, 0, bytes_of(slot_floats_, 4), stream_.get()),
             "zeroing a slot");
}
void CudaBackend::copy_slot(SlotId from, SlotId to) {
  note_error(cudaMemcpyAsync(slots_ + to * slot_floats_, slots_ + from * slot_floats_,
                             bytes_of(slot_floats_, 4), cudaMemcpyDeviceToDevice, stream_.get()),
             "copying a slot");
}
void CudaBackend::copy_page(PageId from, PageId to) {
  note_error(cudaMemcpyAsync(pages_ + to * page_values_, pages_ + from * page_values_,
                             bytes_of(page_values_, 2), cudaMemcpyDeviceToDevice, stream_.get()),
             "copying a page");
}
void CudaBackend::read_slot(SlotId slot, std::span<std::byte> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == slot_bytes(), "{} bytes for {}", out.size(),
             slot_bytes());
  copy_to_host(out, slots_ + slot * slot_floats_);
}
void CudaBackend::write_slot(SlotId slot, std::span<const std::byte> in) {
  LILY_CHECK(static_cast<std::int64_t>(in.size()) == slot_bytes(), "{} bytes for {}", in.size(),
             slot_bytes());
  copy_to_device(slots_ + slot * slot_floats_, in);
}
void CudaBackend::read_page(PageId page, std::span<std::byte> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == page_bytes(), "{} bytes for {}", out.size(),
             page_bytes());
  copy_to_host(out, pages_ + page * page_values_);
}
void CudaBackend::write_page(PageId page, std::span<const std::byte> in) {
  LILY_CHECK(static_cast<std::int64_t>(in.size()) == page_bytes(), "{} bytes for {}", in.size(),
             page_bytes());
  copy_to_device(pages_ + page * page_values_, in);
}

}  // namespace lily::cuda

namespace lily {

bool has_cuda_backend() {
  return true;
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options, const ModelWeights& weights,
                                                   const BackendLimits& limits) {
  LILY_TRY(const KvType kv_type, parse_kv_type(options.kv_type, KvType::kBf16));
  if (kv_type != KvType::kBf16) {
    return fail(ErrorCode::kUnsupported, "cuda: kv-type {}: K and V are kept in bf16", kv_type_name(kv_type));
  }
  return cuda::CudaBackend::create(weights, limits, options.without);
}

}  // namespace lily
