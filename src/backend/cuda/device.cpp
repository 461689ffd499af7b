#include "backend/cuda/device.h"

#include <utility>

namespace lily::cuda {
namespace {

struct Noted {
  cudaError_t error = cudaSuccess;
  const char* what = "";
};
// One thread drives a backend; loading threads have their own.
thread_local Noted noted;

}  // namespace

void note_error(cudaError_t error, const char* what) {
  if (error != cudaSuccess && noted.error == cudaSuccess) noted = {error, what};
}

Result<void> take_error() {
  const Noted taken = std::exchange(noted, Noted());
  return checked(taken.error, taken.what);
}

Result<void> checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::kExhausted : ErrorCode::kInternal;
  return fail(code, "cuda: {}: {}", what, cudaGetErrorString(error));
}

Result<OpenDevice> open_device() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    return fail(ErrorCode::kUnsupported, "cuda: no usable device: {}",
                found != cudaSuccess ? cudaGetErrorString(found) : "none is installed");
  }
  LILY_TRY_VOID(checked(cudaSetDevice(0), "cudaSetDevice"));
  cudaDeviceProp properties{};
  LILY_TRY_VOID(checked(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties"));
  if (properties.major < 8) {
    return fail(ErrorCode::kUnsupported, "cuda: {} has compute capability {}.{}, expected 8.0 or later",
                properties.name, properties.major, properties.minor);
  }
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  LILY_TRY_VOID(checked(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo"));
  OpenDevice open;
  open.device = {.multiprocessors = properties.multiProcessorCount,
                 .overlap = properties.major >= 9,
                 .hopper = properties.major == 9 && properties.minor == 0,
                 .shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin)};
  open.name = properties.name;
  open.free_bytes = static_cast<std::int64_t>(free_bytes);
  return open;
}

Result<Memory> Memory::allocate(Kind kind, std::int64_t bytes, const char* what) {
  Memory memory;
  memory.kind_ = kind;
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  const cudaError_t error = kind == Kind::kDevice ? cudaMalloc(&data, size) : cudaMallocHost(&data, size);
  if (error != cudaSuccess) {
    return fail(ErrorCode::kExhausted, "cuda: {}: {} bytes of {} memory: {}", what, bytes,
                kind == Kind::kDevice ? "device" : "pinned", cudaGetErrorString(error));
  }
  memory.data_ = static_cast<std::byte*>(data);
  return memory;
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(data_, other.data_);
  return *this;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (kind_ == Kind::kDevice) {
    cudaFree(data_);
  } else {
    cudaFreeHost(data_);
  }
}

Result<Stream> Stream::create() {
  Stream stream;
  LILY_TRY_VOID(
      checked(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "cudaStreamCreate"));
  stream.owned_ = true;
  return stream;
}

Stream::~Stream() {
  if (owned_) cudaStreamDestroy(stream_);
}

}  // namespace lily::cuda
