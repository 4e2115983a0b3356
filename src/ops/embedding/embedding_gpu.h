#pragma once

#include "ops/gpu_call.h"

namespace rullama {

[[nodiscard]] Result<> record_embedding(GpuCall& call, float scale);
[[nodiscard]] Result<> record_embedding_columns(GpuCall& call);
[[nodiscard]] Result<> record_scatter_add_columns(GpuCall& call);

}  // namespace rullama
