#include "cli/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>

#include <fstream>
#include <string_view>
#include <thread>

#include "base/units.h"

namespace lily {
namespace {

// A field of one of /proc's "name : value" files; empty where there is none.
std::string proc_field(const char* file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

}  // namespace

Machine this_machine() {
  utsname system{};
  ::uname(&system);
  Machine machine{.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine),
                  .cpu = proc_field("/proc/cpuinfo", "model name"),
                  .threads = std::thread::hardware_concurrency()};
  machine.memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return machine;
}

std::string machine_text(const Machine& machine) {
  std::string text = fmt::format("system   {}\n", machine.system);
  if (!machine.cpu.empty()) text += fmt::format("cpu      {}\n", machine.cpu);
  return text + fmt::format("threads  {}\nmemory   {}\n", machine.threads, format_bytes(machine.memory));
}

}  // namespace lily
