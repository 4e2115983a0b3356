#pragma once

#include <array>
#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// What a step needs to know, in the order of the op's input. The bias corrections are formed in double: in f32
// 1 - b^t loses its digits for small t and b near 1.
struct AdamHyper {
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2;  // 1 - beta1^t, 1 - beta2^t
  float gradient_scale;            // g is multiplied by this first: 1, or 1 / accumulated steps
};
[[nodiscard]] AdamHyper adam_hyper(double lr, std::uint64_t step, double beta1 = 0.9, double beta2 = 0.999,
                                   double eps = 1e-8, double weight_decay = 0, double gradient_scale = 1);

// One step, in place on p, m and v (states outside the graph): g' = gradient_scale * clip * g,
// m = b1 m + (1-b1) g', v = b2 v + (1-b2) g'^2, p -= lr (m / correction1 / (sqrt(v / correction2) + eps) + wd p).
// p, m, v, g: F32 of as many elements; hyper: F32 [8], an AdamHyper; clip: F32 [1] or invalid (then 1).
// Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
void adamw(Var p, Var m, Var v, Var g, Var hyper, Var clip = {});

// min(1, max_norm / sqrt(squares)): the factor that bounds a gradient's norm. squares: F32 [1], for example the sum of
// sum_squares (ops/reduce/reduce.h) of all gradients. max_norm <= 0: 1.
[[nodiscard]] Var clip_factor(Var squares, float max_norm);

}  // namespace rullama
