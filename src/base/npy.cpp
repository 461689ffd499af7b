#include "base/npy.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "base/bf16.h"
#include "base/mmap.h"

namespace lily {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string_view descr;  // "<i4"
  bool fortran_order = false;
  std::string_view shape;  // the inside of the parentheses
  std::size_t data_offset = 0;
};

// What follows `'key':` in the header's Python dictionary.
std::optional<std::string_view> after_key(std::string_view dictionary, std::string_view key) {
  const std::size_t at = dictionary.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = dictionary.substr(at + key.size());
  const std::size_t value = rest.find_first_not_of(" :");
  if (value == std::string_view::npos) return std::nullopt;
  return rest.substr(value);
}

std::optional<std::string_view> between(std::optional<std::string_view> text, char open, char close) {
  if (!text || text->empty() || text->front() != open) return std::nullopt;
  const std::size_t end = text->find(close, 1);
  if (end == std::string_view::npos) return std::nullopt;
  return text->substr(1, end - 1);
}

Result<Header> parse_header(std::string_view name, std::string_view bytes) {
  const auto corrupt = [&](std::string_view what) {
    return fail(ErrorCode::kCorrupt, "{}: not an .npy file: {}", name, what);
  };
  if (bytes.size() < 10 || !bytes.starts_with(kMagic)) return corrupt("it does not start with \\x93NUMPY");
  const int version = static_cast<unsigned char>(bytes[6]);
  const std::size_t length_size = version == 1 ? 2 : 4;
  const std::size_t start = 8 + length_size;
  if (version < 1 || version > 3 || bytes.size() < start) return corrupt("unknown version");
  const std::size_t length = version == 1 ? load_unaligned<std::uint16_t>(bytes.data() + 8)
                                          : load_unaligned<std::uint32_t>(bytes.data() + 8);
  if (length > bytes.size() - start) return corrupt("its header is longer than the file");
  const std::string_view dictionary = bytes.substr(start, length);

  const auto descr = between(after_key(dictionary, "'descr'"), '\'', '\'');
  const auto order = after_key(dictionary, "'fortran_order'");
  const auto shape = between(after_key(dictionary, "'shape'"), '(', ')');
  if (!descr || !order || !shape) return corrupt("descr, fortran_order or shape is missing");
  return Header{*descr, order->starts_with("True"), *shape, start + length};
}

// "5," or "5": the length of a one-dimensional array.
std::optional<std::size_t> one_dimension(std::string_view shape) {
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), count);
  if (error != std::errc()) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(shape.data() + shape.size() - end));
  if (rest.find_first_not_of(", ") != std::string_view::npos) return std::nullopt;
  return count;
}

std::string make_header(std::string_view descr, std::string_view shape) {
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  const std::size_t prefix = kMagic.size() + 4;  // magic, version, header length
  while ((prefix + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(dictionary.size() & 0xffU);
  header += static_cast<char>(dictionary.size() >> 8U);
  return header + dictionary;
}

}  // namespace

Result<std::vector<TokenId>> parse_npy_ids(std::string_view name, std::span<const std::byte> bytes) {
  LILY_TRY(const Header header,
           parse_header(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  const std::size_t width = header.descr == "<i4" ? 4 : 8;
  const auto count = one_dimension(header.shape);
  if ((header.descr != "<i4" && header.descr != "<i8") || !count) {
    return fail(ErrorCode::kInvalidArgument, "{}: expected int32 of one dimension, found {} of shape ({})",
                name, header.descr, header.shape);
  }
  const auto data = bytes.subspan(header.data_offset);
  if (*count > data.size() / width || *count * width != data.size()) {
    return fail(ErrorCode::kCorrupt, "{}: expected {} values of {} bytes, found {} bytes", name, *count,
                width, data.size());
  }
  std::vector<TokenId> ids(*count);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::byte* at = data.data() + i * width;
    const std::int64_t value =
        width == 4 ? load_unaligned<std::int32_t>(at) : load_unaligned<std::int64_t>(at);
    if (value < 0 || value > std::numeric_limits<TokenId>::max()) {
      return fail(ErrorCode::kInvalidArgument, "{}: item {}: expected a token id, found {}", name, i, value);
    }
    ids[i] = static_cast<TokenId>(value);
  }
  return ids;
}

Result<std::vector<TokenId>> read_npy_ids(const std::filesystem::path& path) {
  LILY_TRY(const MappedFile file, MappedFile::open(path));
  return parse_npy_ids(path.string(), file.bytes());
}

Result<void> write_npy_ids(const std::filesystem::path& path, std::span<const TokenId> ids) {
  LILY_TRY(AtomicFile file, AtomicFile::create(path));
  LILY_TRY_VOID(file.write(make_header("<i4", fmt::format("{},", ids.size()))));
  LILY_TRY_VOID(file.write(std::as_bytes(ids)));
  return file.commit();
}

Result<NpyMatrixWriter> NpyMatrixWriter::create(const std::filesystem::path& path, std::int64_t rows,
                                                std::int64_t columns) {
  LILY_TRY(AtomicFile file, AtomicFile::create(path));
  LILY_TRY_VOID(file.write(make_header("<f4", fmt::format("{}, {}", rows, columns))));
  return NpyMatrixWriter(std::move(file), rows * columns);
}

Result<void> NpyMatrixWriter::append(std::span<const float> values) {
  missing_ -= static_cast<std::int64_t>(values.size());
  return file_.write(std::as_bytes(values));
}

Result<void> NpyMatrixWriter::commit() {
  LILY_CHECK(missing_ == 0, "{} values are missing", missing_);
  return file_.commit();
}

}  // namespace lily
