#include "ops/op_table.h"

#include <iterator>

#include "ops/op_cases.h"

namespace rullama {
namespace {

template <class T>
std::vector<T> join(std::initializer_list<std::vector<T> (*)()> parts) {
  std::vector<T> all;
  for (const auto part : parts) {
    auto items = part();
    all.insert(all.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  }
  return all;
}

}  // namespace

std::vector<OpCase> op_cases() {
  return join<OpCase>({
      accumulate_cases,  adamw_cases,
      attention_cases,   cache_write_cases,
      conv_cases,        cross_entropy_cases,
      draw_cases,        dropout_cases,
      elementwise_cases, embedding_cases,
      experts_cases,     geglu_cases,
      heads_cases,       heads_attention_cases,
      layer_norm_cases,  local_attention_cases,
      matmul_cases,      matmul_joined_cases,
      pool_cases,        position_embedding_cases,
      reduce_cases,      residual_product_cases,
      rms_norm_cases,    rope_cases,
      slice_cases,       stft_cases,
      top_k_cases,       transpose_cases,
  });
}

std::vector<OpRefusal> op_refusals() {
  return join<OpRefusal>({
      accumulate_refusals,
      adamw_refusals,
      attention_refusals,
      cache_write_refusals,
      conv_refusals,
      cross_entropy_refusals,
      draw_refusals,
      dropout_refusals,
      elementwise_refusals,
      embedding_refusals,
      experts_refusals,
      geglu_refusals,
      heads_refusals,
      layer_norm_refusals,
      local_attention_refusals,
      matmul_refusals,
      matmul_joined_refusals,
      pool_refusals,
      position_embedding_refusals,
      reduce_refusals,
      residual_product_refusals,
      rms_norm_refusals,
      rope_refusals,
      slice_refusals,
      stft_refusals,
      top_k_refusals,
      transpose_refusals,
  });
}

}  // namespace rullama
