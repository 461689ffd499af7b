// This machine, for reports.
#pragma once

#include <string>

namespace lily {

struct Machine {
  std::string system;
  std::string cpu;
  unsigned threads = 0;
  double memory = 0;  ///< bytes
};

[[nodiscard]] Machine this_machine();
/// A line each.
[[nodiscard]] std::string machine_text(const Machine& machine);

}  // namespace lily
