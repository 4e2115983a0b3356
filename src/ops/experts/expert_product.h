#pragma once

#include "ops/cpu_call.h"

namespace rullama {

// inputs x, w, ids; `gated`: the first half of an expert's rows is the gate of the second
void expert_product_cpu(const CpuCall& call, bool gated);
// inputs dy, w, ids
void expert_transposed_cpu(const CpuCall& call, bool shared);

}  // namespace rullama
