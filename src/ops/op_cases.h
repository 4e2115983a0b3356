// What each op folder contributes to the op table.
#pragma once

#include "ops/op_table.h"

namespace rullama {

std::vector<OpCase> accumulate_cases();
std::vector<OpRefusal> accumulate_refusals();
std::vector<OpCase> adamw_cases();
std::vector<OpRefusal> adamw_refusals();
std::vector<OpCase> attention_cases();
std::vector<OpRefusal> attention_refusals();
std::vector<OpCase> cache_write_cases();
std::vector<OpRefusal> cache_write_refusals();
std::vector<OpCase> conv_cases();
std::vector<OpRefusal> conv_refusals();
std::vector<OpCase> cross_entropy_cases();
std::vector<OpRefusal> cross_entropy_refusals();
std::vector<OpCase> draw_cases();
std::vector<OpRefusal> draw_refusals();
std::vector<OpCase> dropout_cases();
std::vector<OpRefusal> dropout_refusals();
std::vector<OpCase> elementwise_cases();
std::vector<OpRefusal> elementwise_refusals();
std::vector<OpCase> embedding_cases();
std::vector<OpRefusal> embedding_refusals();
std::vector<OpCase> experts_cases();
std::vector<OpRefusal> experts_refusals();
std::vector<OpCase> geglu_cases();
std::vector<OpRefusal> geglu_refusals();
std::vector<OpCase> heads_attention_cases();
std::vector<OpCase> heads_cases();
std::vector<OpRefusal> heads_refusals();
std::vector<OpCase> layer_norm_cases();
std::vector<OpRefusal> layer_norm_refusals();
std::vector<OpCase> local_attention_cases();
std::vector<OpRefusal> local_attention_refusals();
std::vector<OpCase> matmul_cases();
std::vector<OpRefusal> matmul_refusals();
std::vector<OpCase> matmul_joined_cases();
std::vector<OpRefusal> matmul_joined_refusals();
std::vector<OpCase> pool_cases();
std::vector<OpRefusal> pool_refusals();
std::vector<OpCase> position_embedding_cases();
std::vector<OpRefusal> position_embedding_refusals();
std::vector<OpCase> reduce_cases();
std::vector<OpRefusal> reduce_refusals();
std::vector<OpCase> residual_product_cases();
std::vector<OpRefusal> residual_product_refusals();
std::vector<OpCase> rms_norm_cases();
std::vector<OpRefusal> rms_norm_refusals();
std::vector<OpCase> rope_cases();
std::vector<OpRefusal> rope_refusals();
std::vector<OpCase> slice_cases();
std::vector<OpRefusal> slice_refusals();
std::vector<OpCase> stft_cases();
std::vector<OpRefusal> stft_refusals();
std::vector<OpCase> top_k_cases();
std::vector<OpRefusal> top_k_refusals();
std::vector<OpCase> transpose_cases();
std::vector<OpRefusal> transpose_refusals();

}  // namespace rullama
