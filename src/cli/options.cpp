#include "cli/options.h"

namespace lily {

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
