// Experts chosen by the host, in place of the card: what `lily ablate` compares it to.
#pragma once

#include "backend/cuda/kernels.h"

namespace lily::cuda {

/// route(), but the logits go to the host, which waits for them, and the lists come back.
void route_on_host(const Launch& where, const RouteArgs& a);

}  // namespace lily::cuda
