// A file linked into the binary (cmake/embed.cmake makes tables of them).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lily {

struct EmbeddedFile {
  std::string_view name;
  std::span<const std::byte> bytes;
};

}  // namespace lily
