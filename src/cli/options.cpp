#include "cli/options.h"

#include <algorithm>

namespace lily {

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    if (end > at) parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

ModelOptions model_options(const Options& options) {
  ModelOptions model;
  model.model = options.model;
  model.backend = {.name = options.backend,
                   .exact = options.exact,
                   .threads = static_cast<int>(options.threads),
                   .isa = options.isa,
                   .kv_type = options.kv_type,
                   .pin_threads = options.pin};
  model.max_seq = options.max_seq;
  model.slots = options.slots;
  model.kv_tokens = options.kv_tokens;
  model.max_rows = options.chunk;
  model.prefault = options.prefault;
  model.mlock = options.mlock;
  model.assume_template = options.assume_template;
  return model;
}

}  // namespace lily
