// Convolutions. Sequences and images are channel-first, F32 [C, T] or [C, H, W], unless said otherwise. Weights are
// F32, F16 or BF16, sums F32. No derivatives: the models that use them are not trained here.
#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

struct ConvOptions {
  std::uint32_t stride = 1, padding = 0, dilation = 1;  // the same in both directions; zeros on both sides
  std::uint32_t groups = 1;                             // divides Cin and Cout; depthwise: Cin
  Var bias = {};                                        // F32 [Cout], or invalid (0)
};

// y[o, t] = bias[o] + sum_{i, k} w[o, i, k] x[g(o) + i, stride t + dilation k - padding].
// x: [Cin, T]; w: [Cout, Cin / groups, K]. Returns [Cout, (T + 2 padding - dilation (K - 1) - 1) / stride + 1].
[[nodiscard]] Var conv_1d(Var x, Var w, const ConvOptions& options = {});

// The same in two directions. x: [Cin, H, W]; w: [Cout, Cin / groups, Kh, Kw]. Returns [Cout, H', W'].
[[nodiscard]] Var conv_2d(Var x, Var w, const ConvOptions& options = {});

// conv_2d with the channel last: returns [H', W', Cout]. Image patches (stride = kernel) become rows of a matrix.
[[nodiscard]] Var conv_2d_channels_last(Var x, Var w, const ConvOptions& options = {});

struct TransposedConvOptions {
  std::uint32_t stride = 1, padding = 0, groups = 1;
  std::uint32_t out_padding = 0;  // further elements at the end, fewer than stride
  Var bias = {};                  // F32 [Cout], or invalid (0)
};

// y[o, t] = bias[o] + sum_{i, s, k: stride s + k - padding = t} w[i, o, k] x[i, s], over the channels i of o's group.
// x: [Cin, T]; w: [Cin, Cout / groups, K]. Returns [Cout, (T - 1) stride - 2 padding + K + out_padding].
[[nodiscard]] Var conv_1d_transposed(Var x, Var w, const TransposedConvOptions& options = {});

// Depthwise over the past, time first: y[t, c] = sum_k w[c, k] x[t - (K - 1) + k, c], zeros before the start.
// x: F32 [T, C]; w: [C, K]. Returns F32 [T, C].
[[nodiscard]] Var causal_conv_1d(Var x, Var w);

}  // namespace rullama
