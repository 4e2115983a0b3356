// What each op folder contributes to the op table.
#pragma once

#include "ops/op_table.h"

namespace rullama {

std::vector<OpCase> rms_norm_cases();
std::vector<OpRefusal> rms_norm_refusals();

}  // namespace rullama
