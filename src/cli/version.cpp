#include "cli/version.h"

#include "commit.h"

namespace lily {

std::string version() {
  return LILY_VERSION;
}
std::string commit() {
  return LILY_COMMIT;
}

}  // namespace lily
