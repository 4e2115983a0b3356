// Functions of one or two values at a time. Each is a row of a table in unary.cpp or binary.cpp.
#pragma once

#include "ops/graph.h"

namespace rullama {

// --- one value. x: F32 of any shape; returns the same shape.
[[nodiscard]] Var scale(Var x, float s);                       // s x
[[nodiscard]] Var softcap(Var x, float cap);                   // cap tanh(x / cap); x itself if cap <= 0
[[nodiscard]] Var softcap_backward(Var x, float cap, Var dy);  // dy (1 - tanh(x / cap)^2); dy if cap <= 0
[[nodiscard]] Var clamp(Var x, float lo, float hi);            // min(max(x, lo), hi); infinite bounds do nothing
[[nodiscard]] Var gelu(Var x);                                 // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
[[nodiscard]] Var gelu_exact(Var x);                           // 0.5 x (1 + erf(x / sqrt 2))
[[nodiscard]] Var silu(Var x);                                 // x / (1 + exp(-x))
[[nodiscard]] Var leaky_relu(Var x, float slope);              // x < 0 ? slope x : x

// --- two values. The second may be shorter: element i of the first meets element i mod n of the second, so a vector of
// one row's length goes with every row, and a single value with everything. F32; returns the first's shape.
[[nodiscard]] Var add(Var a, Var b);
[[nodiscard]] Var add_scaled(Var a, Var b, float s);  // a + s b
[[nodiscard]] Var multiply(Var a, Var b);
[[nodiscard]] Var scale_by(Var x, Var s);  // x s; the last repeat of s may be cut
[[nodiscard]] Var bias(Var x, Var b);      // x + b

// x + sin(a_c x)^2 / a_c. x: F32 [C, T]; a: F32 [C], not 0, one for each row. Source: Ziyin et al. 2020.
[[nodiscard]] Var snake(Var x, Var a);

}  // namespace rullama
