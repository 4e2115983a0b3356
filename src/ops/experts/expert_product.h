#pragma once

#include "ops/cpu_call.h"

namespace rullama {

// inputs x, w, ids
void expert_product_cpu(const CpuCall& call);
// inputs dy, w, ids
void expert_transposed_cpu(const CpuCall& call, bool shared);

}  // namespace rullama
