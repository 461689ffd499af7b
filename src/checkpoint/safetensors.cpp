#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/bf16.h"
#include "checkpoint/json.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the reference library's own limit

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

constexpr std::array kDTypes = {
    DTypeInfo{DType::kBool, "BOOL", 1}, DTypeInfo{DType::kU8, "U8", 1},   DTypeInfo{DType::kI8, "I8", 1},
    DTypeInfo{DType::kU16, "U16", 2},   DTypeInfo{DType::kI16, "I16", 2}, DTypeInfo{DType::kF16, "F16", 2},
    DTypeInfo{DType::kBF16, "BF16", 2}, DTypeInfo{DType::kU32, "U32", 4}, DTypeInfo{DType::kI32, "I32", 4},
    DTypeInfo{DType::kF32, "F32", 4},   DTypeInfo{DType::kU64, "U64", 8}, DTypeInfo{DType::kI64, "I64", 8},
    DTypeInfo{DType::kF64, "F64", 8},
};

const DTypeInfo& info(DType dtype) {
  const auto* found = std::ranges::find(kDTypes, dtype, &DTypeInfo::dtype);
  LILY_CHECK(found != kDTypes.end(), "dtype {} has no entry", static_cast<int>(dtype));
  return *found;
}

// A tensor as the header claims it, before its place in the file has been checked.
struct Claim {
  TensorView view;
  std::uint64_t begin = 0;  // relative to the end of the header
  std::uint64_t end = 0;
};

// shape x element size, or nothing if that is more than 64 bits hold.
std::optional<std::uint64_t> byte_count(const TensorView& view) {
  std::uint64_t bytes = dtype_size(view.dtype);
  for (const std::int64_t dimension : view.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<DType> parse_dtype(const json& entry) {
  const auto field = entry.find("dtype");
  if (field == entry.end() || !field->is_string())
    return fail(ErrorCode::kCorrupt, "dtype: expected a string");
  const auto& name = field->get_ref<const std::string&>();
  const auto* found = std::ranges::find(kDTypes, name, &DTypeInfo::name);
  if (found == kDTypes.end()) return fail(ErrorCode::kCorrupt, "dtype: unknown type \"{}\"", printable(name));
  return found->dtype;
}

Result<std::vector<std::int64_t>> parse_shape(const json& entry) {
  const auto field = entry.find("shape");
  if (field == entry.end() || !field->is_array())
    return fail(ErrorCode::kCorrupt, "shape: expected an array");
  std::vector<std::int64_t> shape;
  shape.reserve(field->size());
  for (const json& dimension : *field) {
    if (!dimension.is_number_unsigned() ||
        dimension.get<std::uint64_t>() >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(ErrorCode::kCorrupt, "shape: expected whole numbers from 0 to 2^63-1, found {}",
                  dimension.dump());
    }
    shape.push_back(dimension.get<std::int64_t>());
  }
  return shape;
}

Result<std::pair<std::uint64_t, std::uint64_t>> parse_offsets(const json& entry) {
  const auto field = entry.find("data_offsets");
  if (field == entry.end() || !field->is_array() || field->size() != 2 || !(*field)[0].is_number_unsigned() ||
      !(*field)[1].is_number_unsigned()) {
    return fail(ErrorCode::kCorrupt, "data_offsets: expected two unsigned whole numbers");
  }
  const auto begin = (*field)[0].get<std::uint64_t>();
  const auto end = (*field)[1].get<std::uint64_t>();
  if (begin > end) return fail(ErrorCode::kCorrupt, "data_offsets: begin {} is after end {}", begin, end);
  return std::pair{begin, end};
}

Result<Claim> parse_claim(const std::string& name, const json& entry) {
  if (!entry.is_object()) return fail(ErrorCode::kCorrupt, "expected an object");
  Claim claim;
  claim.view.name = name;
  LILY_TRY(claim.view.dtype, parse_dtype(entry));
  LILY_TRY(claim.view.shape, parse_shape(entry));
  LILY_TRY(const auto offsets, parse_offsets(entry));
  std::tie(claim.begin, claim.end) = offsets;
  if (entry.size() != 3) return fail(ErrorCode::kCorrupt, "expected dtype, shape and data_offsets alone");
  const std::uint64_t found = claim.end - claim.begin;
  const auto expected = byte_count(claim.view);
  if (!expected) return fail(ErrorCode::kCorrupt, "{}: more than 2^64 bytes", claim.view.describe());
  if (*expected != found) {
    return fail(ErrorCode::kCorrupt, "{} is {} bytes, data_offsets span {}", claim.view.describe(), *expected,
                found);
  }
  return claim;
}

Result<void> check_metadata(const json& metadata) {
  const bool strings = metadata.is_object() &&
                       std::ranges::all_of(metadata, [](const json& value) { return value.is_string(); });
  if (!strings) return fail(ErrorCode::kCorrupt, "__metadata__: expected an object of strings");
  return {};
}

Result<std::vector<Claim>> parse_header(std::string_view text) {
  if (!text.starts_with('{')) return fail(ErrorCode::kCorrupt, "header: expected a JSON object");
  LILY_TRY(const json header, parse_json(text, {.bytes = kLongestHeader, .depth = 3}));
  std::vector<Claim> claims;
  claims.reserve(header.size());
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      LILY_TRY_VOID(check_metadata(entry));
      continue;
    }
    auto claim = parse_claim(name, entry);
    if (!claim.ok()) return std::move(claim).error().in(printable(name));
    claims.push_back(std::move(claim).value());
  }
  return claims;
}

// The format allows neither gaps nor overlaps: in order of offset, each tensor begins where the one before
// ended, and the last one ends with the file.
Result<void> check_layout(std::vector<Claim>& claims, std::uint64_t data_bytes) {
  std::ranges::sort(claims, {}, [](const Claim& claim) { return std::pair{claim.begin, claim.end}; });
  std::uint64_t expected = 0;
  for (const Claim& claim : claims) {
    if (claim.begin != expected) {
      return fail(ErrorCode::kCorrupt, "{}: data begins at {}, expected {}: {}", printable(claim.view.name),
                  claim.begin, expected,
                  claim.begin < expected ? "it overlaps another tensor" : "there is a gap");
    }
    expected = claim.end;
  }
  if (expected != data_bytes) {
    return fail(ErrorCode::kCorrupt, "the header describes {} bytes of data, the file holds {}: {}", expected,
                data_bytes, data_bytes < expected ? "it is cut short" : "it has trailing bytes");
  }
  return {};
}

// The header's text; everything the length prefix claims is checked against the file first.
Result<std::string_view> header_text(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return fail(ErrorCode::kCorrupt, "{} bytes, expected a safetensors file of at least {}", bytes.size(),
                kLengthBytes);
  }
  const auto length = load_unaligned<std::uint64_t>(bytes.data());
  const std::uint64_t left = bytes.size() - kLengthBytes;
  if (length > kLongestHeader) {
    return fail(ErrorCode::kCorrupt, "header length {}, expected at most {}: not a safetensors file?", length,
                kLongestHeader);
  }
  if (length > left) {
    return fail(ErrorCode::kCorrupt, "header length {}, but only {} bytes follow: the file is cut short",
                length, left);
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
}

Result<std::vector<TensorView>> parse(std::span<const std::byte> bytes) {
  LILY_TRY(const std::string_view header, header_text(bytes));
  LILY_TRY(std::vector<Claim> claims, parse_header(header));
  const auto data = bytes.subspan(kLengthBytes + header.size());
  LILY_TRY_VOID(check_layout(claims, data.size()));
  std::vector<TensorView> views;
  views.reserve(claims.size());
  for (Claim& claim : claims) {
    claim.view.data = data.subspan(claim.begin, claim.end - claim.begin);
    views.push_back(std::move(claim.view));
  }
  return views;
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return info(dtype).name;
}
std::size_t dtype_size(DType dtype) {
  return info(dtype).size;
}

std::int64_t TensorView::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

std::string TensorView::describe() const {
  std::string text(dtype_name(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

Result<std::vector<TensorView>> parse_safetensors(std::string_view file, std::span<const std::byte> bytes) {
  auto views = parse(bytes);
  if (!views.ok()) return std::move(views).error().in(file);
  return views;
}

}  // namespace lily
