#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lily {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "lily: internal error at %s:%d: (%s) %s\n", file, line, condition, message.c_str());
  std::abort();
}

}  // namespace lily
