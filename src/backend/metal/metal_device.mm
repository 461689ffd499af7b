// A GpuDevice on Apple's API. Kernels are compiled at start from their embedded sources; what was compiled is
// kept in a binary archive in the user's cache folder.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <fmt/core.h>

#include <string>
#include <vector>

#include "backend/metal/gpu_device.h"
#include "base/embedded.h"
#include "base/log.h"

namespace lily {
std::span<const EmbeddedFile> embedded_metal_kernels();
}

namespace lily::metal {
namespace {

NSString* to_ns(std::string_view text) {
  return [[NSString alloc] initWithBytes:text.data() length:text.size() encoding:NSUTF8StringEncoding];
}

std::string message_of(NSError* error) {
  return error != nil ? std::string(error.localizedDescription.UTF8String) : "no reason given";
}

MTLSize size_of(Extents e) {
  return MTLSizeMake(e.x, e.y, e.z);
}

/// What is allocated, and kept where the GPU can reach it, also while nothing runs.
struct Resident {
  id<MTLResidencySet> set = nil;
  std::int64_t bytes = 0;
};

class MetalBuffer final : public GpuBuffer {
 public:
  MetalBuffer(id<MTLBuffer> buffer, Resident& resident) : buffer_(buffer), resident_(resident) {
    resident_.bytes += static_cast<std::int64_t>(buffer.length);
    [resident_.set addAllocation:buffer];
    [resident_.set commit];
    [resident_.set requestResidency];
  }
  ~MetalBuffer() override {
    resident_.bytes -= static_cast<std::int64_t>(buffer_.length);
    [resident_.set removeAllocation:buffer_];
    [resident_.set commit];
  }
  MetalBuffer(const MetalBuffer&) = delete;
  MetalBuffer& operator=(const MetalBuffer&) = delete;
  [[nodiscard]] std::byte* contents() const override { return static_cast<std::byte*>(buffer_.contents); }
  [[nodiscard]] std::size_t size() const override { return buffer_.length; }
  [[nodiscard]] id<MTLBuffer> get() const { return buffer_; }

 private:
  const id<MTLBuffer> buffer_;
  Resident& resident_;  ///< the device's
};

class MetalPipeline final : public GpuPipeline {
 public:
  explicit MetalPipeline(id<MTLComputePipelineState> state) : state_(state) {}
  [[nodiscard]] std::uint32_t max_threads() const override {
    return static_cast<std::uint32_t>(state_.maxTotalThreadsPerThreadgroup);
  }
  [[nodiscard]] id<MTLComputePipelineState> get() const { return state_; }

 private:
  const id<MTLComputePipelineState> state_;
};

/// Keeps the machine from sleeping and throttling while it lives.
class Activity {
 public:
  Activity()
      : token_([NSProcessInfo.processInfo
            beginActivityWithOptions:NSActivityUserInitiated | NSActivityLatencyCritical
                              reason:@"lily runs a model"]) {}
  ~Activity() { [NSProcessInfo.processInfo endActivity:token_]; }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  const id<NSObject> token_;
};

// Buffers are tracked by Metal, so a command buffer starts on what an earlier one writes when that one is
// done; within one, dispatches overlap as far as our barriers let them.
class MetalList final : public CommandList {
 public:
  explicit MetalList(id<MTLCommandBuffer> commands)
      : commands_(commands),
        encoder_([commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent]) {}
  ~MetalList() override {
    if (!submitted_) [encoder_ endEncoding];
  }
  MetalList(const MetalList&) = delete;
  MetalList& operator=(const MetalList&) = delete;

  void set_pipeline(const GpuPipeline& pipeline) override {
    [encoder_ setComputePipelineState:static_cast<const MetalPipeline&>(pipeline).get()];
  }
  void set_buffer(unsigned index, const GpuBuffer& buffer, std::size_t offset,
                  std::size_t /*size*/) override {
    [encoder_ setBuffer:static_cast<const MetalBuffer&>(buffer).get() offset:offset atIndex:index];
  }
  void set_bytes(unsigned index, const void* bytes, std::size_t size) override {
    LILY_CHECK(size <= kMaxInlineBytes, "buffer({}): {} bytes, the limit is {}", index, size,
               kMaxInlineBytes);
    [encoder_ setBytes:bytes length:size atIndex:index];
  }
  void set_threadgroup_memory(unsigned index, std::size_t bytes) override {
    [encoder_ setThreadgroupMemoryLength:(bytes + 15) / 16 * 16 atIndex:index];
  }
  void dispatch(Extents threadgroups, Extents threads_per_threadgroup) override {
    [encoder_ dispatchThreadgroups:size_of(threadgroups)
             threadsPerThreadgroup:size_of(threads_per_threadgroup)];
  }
  void barrier() override { [encoder_ memoryBarrierWithScope:MTLBarrierScopeBuffers]; }

  void submit() override {
    [encoder_ endEncoding];
    [commands_ commit];
    submitted_ = true;
  }
  Result<void> wait() override {
    LILY_CHECK(submitted_, "a command list is waited for and was not submitted");
    [commands_ waitUntilCompleted];
    if (commands_.status == MTLCommandBufferStatusCompleted) return {};
    @autoreleasepool {
      return failure(commands_.error);
    }
  }

 private:
  static Error failure(NSError* error) {
    const bool no_memory = error != nil && error.code == MTLCommandBufferErrorOutOfMemory;
    return fail(no_memory ? ErrorCode::kExhausted : ErrorCode::kInternal, "the GPU gave up: {}",
                message_of(error));
  }

  const id<MTLCommandBuffer> commands_;
  const id<MTLComputeCommandEncoder> encoder_;
  const Activity activity_;
  bool submitted_ = false;
};

/// Compiled pipelines on disk, for this device and these sources.
class PipelineCache {
 public:
  PipelineCache(id<MTLDevice> device, std::size_t sources_hash) {
    NSURL* folder = [NSFileManager.defaultManager URLsForDirectory:NSCachesDirectory
                                                         inDomains:NSUserDomainMask]
                        .firstObject;
    NSString* name = to_ns(fmt::format("lily-metal-{:016x}.archive", sources_hash));
    url_ = [folder URLByAppendingPathComponent:name];
    MTLBinaryArchiveDescriptor* descriptor = [MTLBinaryArchiveDescriptor new];
    if (url_ != nil && [NSFileManager.defaultManager fileExistsAtPath:url_.path]) descriptor.url = url_;
    archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:nil];
    if (archive_ == nil && descriptor.url != nil) {  // a file that this system does not take: start anew
      descriptor.url = nil;
      archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:nil];
    }
  }

  /// From the archive, or compiled and added to it.
  id<MTLComputePipelineState> make(id<MTLDevice> device, id<MTLFunction> function, NSError** error) {
    MTLComputePipelineDescriptor* descriptor = [MTLComputePipelineDescriptor new];
    descriptor.computeFunction = function;
    if (archive_ != nil) {
      descriptor.binaryArchives = @[ archive_ ];
      id<MTLComputePipelineState> kept =
          [device newComputePipelineStateWithDescriptor:descriptor
                                                options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                             reflection:nil
                                                  error:nil];
      if (kept != nil) return kept;
      if ([archive_ addComputePipelineFunctionsWithDescriptor:descriptor error:nil]) grown_ = true;
    }
    return [device newComputePipelineStateWithDescriptor:descriptor
                                                 options:MTLPipelineOptionNone
                                              reflection:nil
                                                   error:error];
  }

  void store() {
    NSError* error = nil;
    if (!grown_ || url_ == nil) return;
    if (![archive_ serializeToURL:url_ error:&error]) {
      log::warn("metal: compiled kernels cannot be kept for the next start: {}", message_of(error));
    }
    grown_ = false;
  }

 private:
  NSURL* url_ = nil;
  id<MTLBinaryArchive> archive_ = nil;
  bool grown_ = false;
};

std::size_t hash_of_sources() {
  std::size_t hash = 0;
  for (const EmbeddedFile& file : embedded_metal_kernels()) {
    const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    hash = hash * 31 + std::hash<std::string_view>()(text);
  }
  return hash;
}

class MetalDevice final : public GpuDevice {
 public:
  explicit MetalDevice(id<MTLDevice> device)
      : device_(device), queue_([device newCommandQueue]), cache_(device, hash_of_sources()) {
    facts_ = {.name = device.name.UTF8String,
              .working_set_bytes = static_cast<std::int64_t>(device.recommendedMaxWorkingSetSize),
              .max_buffer_bytes = static_cast<std::int64_t>(device.maxBufferLength)};
    resident_.set = [device newResidencySetWithDescriptor:[MTLResidencySetDescriptor new] error:nil];
    if (resident_.set != nil) [queue_ addResidencySet:resident_.set];
    for (const EmbeddedFile& file : embedded_metal_kernels()) compile(file);
  }

  [[nodiscard]] const DeviceFacts& facts() const override { return facts_; }

  [[nodiscard]] Result<std::unique_ptr<GpuBuffer>> allocate(std::size_t size,
                                                            std::string_view what) override {
    LILY_TRY_VOID(check_working_set(facts_, resident_.bytes, size, what));
    id<MTLBuffer> buffer = [device_ newBufferWithLength:size options:MTLResourceStorageModeShared];
    if (buffer == nil)
      return fail(ErrorCode::kExhausted, "{}: no memory for {} bytes of {}", facts_.name, size, what);
    return std::unique_ptr<GpuBuffer>(std::make_unique<MetalBuffer>(buffer, resident_));
  }

  [[nodiscard]] Result<std::unique_ptr<GpuPipeline>> pipeline(
      std::string_view kernel, std::span<const FunctionConstant> constants) override {
    @autoreleasepool {
      NSError* error = nil;
      id<MTLFunction> function = nil;
      for (id<MTLLibrary> library : libraries_) {
        if (![library.functionNames containsObject:to_ns(kernel)]) continue;
        function = [library newFunctionWithName:to_ns(kernel)
                                 constantValues:values_of(constants)
                                          error:&error];
        if (function == nil) return fail(ErrorCode::kUnsupported, "kernel {}: {}", kernel, message_of(error));
      }
      if (function == nil)
        return fail(ErrorCode::kUnsupported, "no kernel '{}' on {}{}", kernel, facts_.name, failures_);
      id<MTLComputePipelineState> state = cache_.make(device_, function, &error);
      if (state == nil) return fail(ErrorCode::kUnsupported, "kernel {}: {}", kernel, message_of(error));
      if (state.threadExecutionWidth != kSimdWidth) {
        return fail(ErrorCode::kUnsupported, "kernel {}: SIMD-groups of {} threads, {} are expected", kernel,
                    static_cast<std::size_t>(state.threadExecutionWidth), kSimdWidth);
      }
      return std::unique_ptr<GpuPipeline>(std::make_unique<MetalPipeline>(state));
    }
  }

  void store_pipelines() override { cache_.store(); }

  [[nodiscard]] std::unique_ptr<CommandList> begin() override {
    @autoreleasepool {
      MTLCommandBufferDescriptor* descriptor = [MTLCommandBufferDescriptor new];
      descriptor.errorOptions = MTLCommandBufferErrorOptionEncoderExecutionStatus;
      return std::make_unique<MetalList>([queue_ commandBufferWithDescriptor:descriptor]);
    }
  }

 private:
  // A file that this system's compiler does not take is told where one of its kernels is asked for.
  void compile(const EmbeddedFile& file) {
    MTLCompileOptions* options = [MTLCompileOptions new];
    options.languageVersion = MTLLanguageVersion3_1;
    options.mathMode =
        MTLMathModeSafe;  // NaN and infinity keep their meaning; kernels say fast:: where it pays
    const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    NSError* error = nil;
    id<MTLLibrary> library = [device_ newLibraryWithSource:to_ns(text) options:options error:&error];
    if (library != nil) {
      libraries_.push_back(library);
    } else {
      failures_ += fmt::format("; {} was not compiled: {}", file.name, message_of(error));
    }
  }

  static MTLFunctionConstantValues* values_of(std::span<const FunctionConstant> constants) {
    struct Setter {
      MTLFunctionConstantValues* values;
      unsigned index;
      void operator()(const bool& v) const {
        [values setConstantValue:&v type:MTLDataTypeBool atIndex:index];
      }
      void operator()(const std::uint32_t& v) const {
        [values setConstantValue:&v type:MTLDataTypeUInt atIndex:index];
      }
      void operator()(const float& v) const {
        [values setConstantValue:&v type:MTLDataTypeFloat atIndex:index];
      }
    };
    MTLFunctionConstantValues* values = [MTLFunctionConstantValues new];
    for (const FunctionConstant& c : constants) std::visit(Setter{values, c.index}, c.value);
    return values;
  }

  const id<MTLDevice> device_;
  const id<MTLCommandQueue> queue_;
  PipelineCache cache_;
  std::vector<id<MTLLibrary>> libraries_;
  std::string failures_;  ///< of compilation, to follow a message
  DeviceFacts facts_;
  Resident resident_;
};

}  // namespace

bool has_metal_device() {
  return true;
}

Result<std::unique_ptr<GpuDevice>> make_metal_device() {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil) return fail(ErrorCode::kUnsupported, "metal: this machine has no Metal device");
    return std::unique_ptr<GpuDevice>(std::make_unique<MetalDevice>(device));
  }
}

}  // namespace lily::metal
