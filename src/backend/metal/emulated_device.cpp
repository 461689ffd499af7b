#include "backend/metal/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "base/memory.h"

namespace lily::metal {
namespace {

// What the executor's headers say to the kernels and gpu_device.h to the host is one machine.
static_assert(emu::kBuffers == kMaxBuffers && emu::kThreadgroupArguments == kMaxThreadgroupSlots);
static_assert(emu::kLanes == kSimdWidth && emu::kMostThreads == kMaxThreads);

class EmulatedBuffer final : public GpuBuffer {
 public:
  EmulatedBuffer(std::size_t size, std::int64_t& allocated)
      : size_(size),
        allocated_(allocated),
        bytes_(static_cast<std::byte*>(::operator new(size, std::align_val_t{kBufferAlignment}))) {
    std::memset(bytes_, 0xff, size);  // NaN in every type: what nobody wrote shows
    allocated_ += static_cast<std::int64_t>(size);
  }
  ~EmulatedBuffer() override {
    allocated_ -= static_cast<std::int64_t>(size_);
    ::operator delete(bytes_, std::align_val_t{kBufferAlignment});
  }
  EmulatedBuffer(const EmulatedBuffer&) = delete;
  EmulatedBuffer& operator=(const EmulatedBuffer&) = delete;
  [[nodiscard]] std::byte* contents() const override { return bytes_; }
  [[nodiscard]] std::size_t size() const override { return size_; }

 private:
  const std::size_t size_;
  std::int64_t& allocated_;  ///< by the device
  std::byte* const bytes_;
};

struct EmulatedPipeline final : GpuPipeline {
  explicit EmulatedPipeline(const emu::Kernel& of) : kernel(of) {}
  [[nodiscard]] std::uint32_t max_threads() const override { return kernel.max_threads; }

  const emu::Kernel& kernel;
  emu::ConstantValue constants[emu::kFunctionConstants] = {};
};

std::uint32_t bits_of(const FunctionConstant& constant) {
  std::uint32_t bits = 0;
  std::visit([&](auto value) { std::memcpy(&bits, &value, sizeof value); }, constant.value);
  return bits;
}

}  // namespace

class EmulatedList final : public CommandList {
 public:
  explicit EmulatedList(EmulatedDevice& device) : device_(device) {}
  ~EmulatedList() override {
    LILY_CHECK(std::ranges::find(device_.submitted_, this) == device_.submitted_.end(),
               "a command list was dropped between submit() and wait()");
  }
  EmulatedList(const EmulatedList&) = delete;
  EmulatedList& operator=(const EmulatedList&) = delete;

  void set_pipeline(const GpuPipeline& pipeline) override {
    const auto& mine = static_cast<const EmulatedPipeline&>(pipeline);
    launch_.kernel = &mine.kernel;
    std::ranges::copy(mine.constants, launch_.constants);
  }

  void set_buffer(unsigned index, const GpuBuffer& buffer, std::size_t offset, std::size_t size) override {
    LILY_CHECK(index < kMaxBuffers, "buffer({}), the last is {}", index, kMaxBuffers - 1);
    LILY_CHECK(offset < buffer.size(), "buffer({}): offset {} of {} bytes", index, offset, buffer.size());
    if (size == kToTheEnd) size = buffer.size() - offset;
    LILY_CHECK(size <= buffer.size() - offset, "buffer({}): bytes {} to {} of {}", index, offset,
               offset + size, buffer.size());
    launch_.buffers[index] = {.data = buffer.contents() + offset, .size = size};
  }

  void set_bytes(unsigned index, const void* bytes, std::size_t size) override {
    LILY_CHECK(index < kMaxBuffers, "buffer({}), the last is {}", index, kMaxBuffers - 1);
    LILY_CHECK(size <= kMaxInlineBytes, "buffer({}): {} bytes, the limit is {}", index, size,
               kMaxInlineBytes);
    auto& copy = inline_bytes_.emplace_back(new (std::align_val_t{16}) std::byte[size]);
    std::memcpy(copy.get(), bytes, size);
    launch_.buffers[index] = {.data = copy.get(), .size = size, .read_only = true};
  }

  void set_threadgroup_memory(unsigned index, std::size_t bytes) override {
    LILY_CHECK(index < kMaxThreadgroupSlots, "threadgroup({}), the last is {}", index,
               kMaxThreadgroupSlots - 1);
    launch_.threadgroup_bytes[index] = (bytes + 15) / 16 * 16;
  }

  void dispatch(Extents groups, Extents threads) override {
    LILY_CHECK(launch_.kernel != nullptr, "a dispatch without a pipeline");
    launch_.threadgroups = {groups.x, groups.y, groups.z};
    launch_.threads = {threads.x, threads.y, threads.z};
    const auto count = launch_.threads.count();
    LILY_CHECK(count > 0 && count <= launch_.kernel->max_threads, "kernel {}: {} threads, the limit is {}",
               launch_.kernel->name, count, launch_.kernel->max_threads);
    if (levels_.empty()) levels_.emplace_back();
    levels_.back().push_back(launch_);
  }

  void barrier() override {
    const std::int64_t number = ++device_.barriers_;
    if (device_.options_.barriers != nullptr) *device_.options_.barriers = number;
    if (number == device_.options_.muted_barrier) return;
    levels_.emplace_back();
  }

  void submit() override {
    device_.submitted_.push_back(this);
    if (!device_.options_.late) device_.run_until(*this);
  }

  Result<void> wait() override {
    device_.run_until(*this);
    return status_;
  }

  void run() {
    for (auto& level : levels_) {
      if (auto* observer = device_.options_.executor.observer) observer->begin_level();
      if (device_.options_.shuffled) std::ranges::shuffle(level, device_.random_);
      for (const emu::Launch& launch : level) {
        if (status_.ok()) status_ = device_.executor_.run(launch);
      }
    }
  }

 private:
  struct AlignedDelete {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{16}); }
  };

  EmulatedDevice& device_;
  emu::Launch launch_;  ///< what is set so far
  std::vector<std::vector<emu::Launch>> levels_;
  std::vector<std::unique_ptr<std::byte[], AlignedDelete>> inline_bytes_;
  Result<void> status_;
};

EmulatedDevice::EmulatedDevice(const EmulatedOptions& options)
    : options_(options), executor_(options.executor), random_(options.executor.seed) {
  const std::int64_t memory = usable_memory();
  facts_ = {.name = "metal-emulated", .working_set_bytes = memory / 4 * 3, .max_buffer_bytes = memory / 2};
}

EmulatedDevice::~EmulatedDevice() = default;

Result<std::unique_ptr<GpuBuffer>> EmulatedDevice::allocate(std::size_t size, std::string_view what) {
  LILY_TRY_VOID(check_working_set(facts_, allocated_, size, what));
  return std::unique_ptr<GpuBuffer>(std::make_unique<EmulatedBuffer>(size, allocated_));
}

Result<std::unique_ptr<GpuPipeline>> EmulatedDevice::pipeline(std::string_view name,
                                                              std::span<const FunctionConstant> constants) {
  for (const emu::KernelTable* table : options_.kernels) {
    for (const emu::Kernel& kernel : std::span(table->kernels, table->count)) {
      if (kernel.name != name) continue;
      auto made = std::make_unique<EmulatedPipeline>(kernel);
      for (const FunctionConstant& constant : constants) {
        LILY_CHECK(constant.index < emu::kFunctionConstants, "function constant {}, the last is {}",
                   constant.index, emu::kFunctionConstants - 1);
        made->constants[constant.index] = {.set = true, .bits = bits_of(constant)};
      }
      return std::unique_ptr<GpuPipeline>(std::move(made));
    }
  }
  return fail(ErrorCode::kUnsupported, "no kernel '{}' in this build", name);
}

std::unique_ptr<CommandList> EmulatedDevice::begin() {
  return std::make_unique<EmulatedList>(*this);
}

void EmulatedDevice::run_until(const EmulatedList& last) {
  if (std::ranges::find(submitted_, &last) == submitted_.end()) return;
  for (bool done = false; !done;) {
    EmulatedList* list = submitted_.front();
    submitted_.erase(submitted_.begin());
    list->run();
    done = list == &last;
  }
}

bool has_emulated_device() {
  return true;
}

Result<std::unique_ptr<GpuDevice>> make_emulated_device() {
  // As cmake/metal.cmake compiles the kernels.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) {
    return fail(ErrorCode::kUnsupported, "metal-emulated: its kernels need a CPU with AVX2, FMA and F16C");
  }
  return std::unique_ptr<GpuDevice>(std::make_unique<EmulatedDevice>(EmulatedOptions{}));
}

}  // namespace lily::metal
