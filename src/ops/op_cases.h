// What each op folder contributes to the op table.
#pragma once

#include "ops/op_table.h"

namespace rullama {

std::vector<OpCase> elementwise_cases();
std::vector<OpRefusal> elementwise_refusals();
std::vector<OpCase> geglu_cases();
std::vector<OpRefusal> geglu_refusals();
std::vector<OpCase> reduce_cases();
std::vector<OpCase> rms_norm_cases();
std::vector<OpRefusal> rms_norm_refusals();
std::vector<OpCase> slice_cases();
std::vector<OpRefusal> slice_refusals();

}  // namespace rullama
