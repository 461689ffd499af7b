// From the mapped checkpoint to the card: pieces of a few megabytes, each copied by one of several threads
// into a pinned buffer, sent, and packed there; a thread fills one buffer while the other is on its way.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "backend/cuda/device_weights.h"
#include "base/threads.h"

namespace lily::cuda {
namespace {

constexpr std::int64_t kPieceBytes = 8LL << 20;
#ifdef LILY_CUDA_EMULATED
constexpr int kMostThreads = 1;  // the emulator runs one kernel at a time
#else
constexpr int kMostThreads = 8;
#endif

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/// What one pass through a buffer does: rows of a matrix to be packed, or bytes as they are.
struct Piece {
  const MatrixPart* part = nullptr;
  std::int64_t first = 0;  ///< row of all experts; or null part: the first byte
  std::int64_t rows = 0;   ///< or bytes
  const std::byte* bytes = nullptr;
  std::byte* target = nullptr;
};

void cut_bytes(std::vector<Piece>& pieces, const std::byte* from, void* to, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
    pieces.push_back({.rows = std::min(kPieceBytes, bytes - at),
                      .bytes = from + at,
                      .target = static_cast<std::byte*>(to) + at});
  }
}

// Whole experts, or an even number of rows of one.
void cut_matrix(std::vector<Piece>& pieces, const MatrixPart& part) {
  const QuantizedMatrix& m = *part.source;
  const std::int64_t row_bytes = m.row_bytes() + 4 * m.groups();
  const std::int64_t fitting = std::max<std::int64_t>(2, (kPieceBytes - 1024) / row_bytes / 2 * 2);
  const std::int64_t experts = std::max<std::int64_t>(1, fitting / m.out);
  for (std::int64_t expert = 0; expert < m.experts; expert += experts) {
    const std::int64_t rows = std::min(experts, m.experts - expert) * m.out;
    for (std::int64_t row = 0; row < rows; row += m.out <= fitting ? rows : fitting) {
      pieces.push_back({.part = &part,
                        .first = expert * m.out + row,
                        .rows = m.out <= fitting ? rows : std::min(fitting, rows - row)});
    }
  }
}

class Loader {
 public:
  static Result<Loader> create(const Device& device, int* too_large) {
    LILY_TRY(Stream stream, Stream::create());
    Loader loader(device, std::move(stream), too_large);
    for (Buffer& buffer : loader.buffers_) {
      LILY_TRY(buffer.pinned, Memory::allocate(Memory::Kind::kPinned, kPieceBytes + 4096, "loading buffer"));
      LILY_TRY(buffer.device, Memory::allocate(Memory::Kind::kDevice, kPieceBytes + 4096, "loading buffer"));
      LILY_TRY_VOID(
          checked(cudaEventCreateWithFlags(&buffer.sent, cudaEventDisableTiming), "cudaEventCreate"));
    }
    return loader;
  }
  Loader(Loader&& other) noexcept
      : device_(other.device_),
        stream_(std::move(other.stream_)),
        too_large_(other.too_large_),
        buffers_(std::move(other.buffers_)) {
    for (Buffer& buffer : other.buffers_) buffer.sent = nullptr;
  }
  Loader& operator=(Loader&&) = delete;
  ~Loader() {
    for (const Buffer& buffer : buffers_) {
      if (buffer.sent != nullptr) cudaEventDestroy(buffer.sent);
    }
  }

  Result<void> run(const Piece& piece) {
    Buffer& buffer = buffers_[next_ ^= 1U];
    LILY_TRY_VOID(checked(cudaEventSynchronize(buffer.sent), "loading weights"));
    if (piece.part == nullptr) {
      std::memcpy(buffer.pinned.data(), piece.bytes, static_cast<std::size_t>(piece.rows));
      LILY_TRY_VOID(send(piece.target, buffer, piece.rows));
    } else {
      LILY_TRY_VOID(send_rows(piece, buffer));
    }
    return checked(cudaEventRecord(buffer.sent, stream_.get()), "loading weights");
  }
  Result<void> finish() {
    LILY_TRY_VOID(checked(cudaStreamSynchronize(stream_.get()), "loading weights"));
    return take_error();
  }

 private:
  struct Buffer {
    Memory pinned;
    Memory device;
    cudaEvent_t sent = nullptr;  ///< both buffers may be used again
  };
  Loader(const Device& device, Stream stream, int* too_large)
      : device_(&device), stream_(std::move(stream)), too_large_(too_large) {}

  Result<void> send(std::byte* target, const Buffer& buffer, std::int64_t bytes) {
    return checked(cudaMemcpyAsync(target, buffer.pinned.data(), static_cast<std::size_t>(bytes),
                                   cudaMemcpyHostToDevice, stream_.get()),
                   "loading weights");
  }

  Result<void> send_rows(const Piece& piece, const Buffer& buffer) {
    const MatrixPart& part = *piece.part;
    const QuantizedMatrix& m = *part.source;
    const std::int64_t codes = piece.rows * m.row_bytes();
    const std::int64_t affine = piece.rows * m.groups() * 2;
    const std::int64_t scales_at = aligned(codes);
    const std::int64_t biases_at = scales_at + aligned(affine);
    std::byte* to = buffer.pinned.data();
    std::memcpy(to, m.weight + piece.first * m.row_bytes(), static_cast<std::size_t>(codes));
    std::memcpy(to + scales_at, m.scales + piece.first * m.groups() * 2, static_cast<std::size_t>(affine));
    std::memcpy(to + biases_at, m.biases + piece.first * m.groups() * 2, static_cast<std::size_t>(affine));
    LILY_TRY_VOID(send(buffer.device.data(), buffer, biases_at + affine));
    const std::byte* from = buffer.device.data();
    pack({.device = device_, .stream = stream_.get()},
         {.codes = reinterpret_cast<const std::uint8_t*>(from),
          .scales = reinterpret_cast<const std::uint16_t*>(from + scales_at),
          .biases = reinterpret_cast<const std::uint16_t*>(from + biases_at),
          .bits = m.bits,
          .group_size = m.group_size,
          .rows = static_cast<int>(piece.rows),
          .rows_per_expert = static_cast<int>(m.out),
          .groups = part.target.groups,
          .planes = part.target.planes,
          .first_row = static_cast<int>(piece.first % m.out),
          .first_expert = static_cast<int>(piece.first / m.out),
          .channel_offset = part.channel_offset,
          .bank = part.bank,
          .out = const_cast<std::uint8_t*>(part.target.data),
          .expert_bytes = part.target.expert_bytes(),
          .too_large = too_large_});
    return {};
  }

  const Device* device_;
  Stream stream_;
  int* too_large_;
  std::array<Buffer, 2> buffers_;
  unsigned next_ = 0;
};

std::vector<Piece> cut(const ModelWeights& weights, const DeviceWeights& placed) {
  std::vector<Piece> pieces;
  const QuantizedMatrix& e = weights.embed_tokens;
  cut_bytes(pieces, e.weight, placed.embedding.codes, e.out * e.row_bytes());
  cut_bytes(pieces, e.scales, placed.embedding.scales, e.out * e.groups() * 2);
  cut_bytes(pieces, e.biases, placed.embedding.biases, e.out * e.groups() * 2);
  for (const VectorPart& vector : placed.vectors()) {
    cut_bytes(pieces, reinterpret_cast<const std::byte*>(vector.source->data()), vector.target,
              static_cast<std::int64_t>(vector.source->size() * sizeof(float)));
  }
  for (const MatrixPart& part : placed.matrices()) cut_matrix(pieces, part);
  return pieces;
}

/// Pieces are taken in order by whichever thread is free; the first error stops all.
Result<void> run_all(const Device& device, const std::vector<Piece>& pieces, int* too_large) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first_error;
  const auto work = [&]() -> Result<void> {
    LILY_TRY_VOID(checked(cudaSetDevice(0), "cudaSetDevice"));
    LILY_TRY(Loader loader, Loader::create(device, too_large));
    for (std::size_t i = next++; i < pieces.size(); i = next++) LILY_TRY_VOID(loader.run(pieces[i]));
    return loader.finish();
  };
  const int threads = std::min(kMostThreads, available_cores());
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      auto done = work();
      if (done.ok()) return;
      next = pieces.size();
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::move(done).error();
    });
  }
  for (std::thread& worker : workers) worker.join();
  if (first_error) return *std::move(first_error);
  return {};
}

}  // namespace

Result<void> load(const Device& device, const ModelWeights& weights, const DeviceWeights& placed,
                  const Memory& memory, std::int64_t bytes) {
  LILY_TRY(const Stream stream, Stream::create());
  LILY_TRY(const Memory flag, Memory::allocate(Memory::Kind::kDevice, sizeof(int), "weights"));
  // Rows that pad a matrix are zeros.
  LILY_TRY_VOID(
      checked(cudaMemsetAsync(memory.data(), 0, static_cast<std::size_t>(bytes), stream.get()), "memset"));
  LILY_TRY_VOID(checked(cudaMemsetAsync(flag.data(), 0, sizeof(int), stream.get()), "memset"));
  LILY_TRY_VOID(checked(cudaStreamSynchronize(stream.get()), "memset"));
  auto* too_large = reinterpret_cast<int*>(flag.data());
  LILY_TRY_VOID(run_all(device, cut(weights, placed), too_large));
  int found = 0;
  LILY_TRY_VOID(checked(cudaMemcpyAsync(&found, too_large, sizeof(int), cudaMemcpyDeviceToHost, stream.get()),
                        "memcpy"));
  LILY_TRY_VOID(checked(cudaStreamSynchronize(stream.get()), "memcpy"));
  if (found != 0) {
    return fail(
        ErrorCode::kUnsupported,
        "cuda: a quantisation scale is not below {} (4-bit codes) or {} (8-bit), as the packed layout needs",
        kLargestScale, kLargestScale / 16);
  }
  return {};
}

}  // namespace lily::cuda
