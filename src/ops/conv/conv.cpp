#include "ops/conv/conv.h"

#include "base/text.h"
#include "ops/conv/conv_op.h"

namespace rullama {
namespace {

enum class Kind : std::uint8_t { one, two, two_channels_last, transposed, causal };

std::uint32_t u32(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

class Conv final : public Op {
 public:
  Conv(Kind kind, const ConvOptions& options, std::uint32_t out_padding)
      : kind_(kind), options_(options), out_padding_(out_padding), biased_(bool(options.bias)) {}

  std::string_view name() const override {
    static constexpr std::string_view names[] = {"conv_1d", "conv_2d", "conv_2d_channels_last", "conv_1d_transposed",
                                                 "causal_conv_1d"};
    return names[static_cast<std::size_t>(kind_)];
  }

  // inputs: x, w, [bias]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &x = in[0], &w = in[1];
    const bool plane = kind_ == Kind::two || kind_ == Kind::two_channels_last, causal = kind_ == Kind::causal;
    if (x.dtype != DType::F32 || x.shape.rank() != (plane ? 3 : 2))
      return bad_argument(name(), "x", x, plane ? "F32 [channels, height, width]" : "F32 of two dimensions");
    if (info(w.dtype).quantised || w.dtype == DType::U32 || w.shape.rank() != (plane ? 4 : causal ? 2 : 3))
      return bad_argument(name(), "w", w, cat("F32, F16 or BF16 of ", plane ? 4 : causal ? 2 : 3, " dimensions"));
    const std::uint64_t channels = x.shape[causal ? 1 : 0], groups = causal ? channels : options_.groups;
    if (options_.stride == 0 || options_.dilation == 0)
      return fail(
          cat(name(), ": stride ", options_.stride, " and dilation ", options_.dilation, ", expected 1 or more"));
    if (groups == 0 ? channels != 0 : channels % groups != 0)
      return fail(cat(name(), ": ", groups, " groups cannot share ", channels, " channels evenly"));
    const std::uint64_t per_group = groups ? channels / groups : 0;
    if (causal ? w.shape[0] != channels : kind_ == Kind::transposed ? w.shape[0] != channels : w.shape[1] != per_group)
      return bad_argument(name(), "w", w,
                          cat(kind_ == Kind::transposed || causal ? channels : per_group, " as its ",
                              kind_ == Kind::transposed || causal ? "first" : "second", " dimension"));
    if (!causal && kind_ != Kind::transposed && w.shape[0] % groups != 0)
      return fail(cat(name(), ": ", groups, " groups cannot share ", w.shape[0], " output channels evenly"));
    if (w.shape.back() == 0 || (plane && w.shape[2] == 0)) return bad_argument(name(), "w", w, "a kernel of 1 or more");
    if (out_padding_ >= options_.stride)
      return fail(
          cat(name(), ": an output padding of ", out_padding_, ", expected less than the stride, ", options_.stride));
    const std::uint64_t outputs = kind_ == Kind::transposed ? w.shape[1] * groups : w.shape[0];
    if (biased_ && in[2] != TensorDesc{DType::F32, {outputs}})
      return bad_argument(name(), "bias", in[2], cat("F32 [", outputs, "]"));
    const auto width = length(causal ? x.shape[0] : x.shape.back(), w.shape.back());
    const auto height = plane ? length(x.shape[1], w.shape[2]) : Result<std::uint64_t>(1);
    if (!width || !height)
      return bad_argument(name(), "x", x,
                          cat("an extent that holds the kernel, ", w.shape.str(), " with dilation ", options_.dilation,
                              " and padding ", options_.padding));
    Shape y;
    switch (kind_) {
      case Kind::two: y = {outputs, *height, *width}; break;
      case Kind::two_channels_last: y = {*height, *width, outputs}; break;
      case Kind::causal: y = {*width, outputs}; break;
      default: y = {outputs, *width}; break;
    }
    return std::vector{TensorDesc{DType::F32, y}};
  }

  void eval(const CpuCall& call) const override {
    conv_cpu(geometry(call.in[0].shape(), call.in[1].shape(), call.out[0].shape()), biased_, call);
  }
  Result<> record(GpuCall& call) const override {
    return conv_gpu(geometry(call.in[0].shape(), call.in[1].shape(), call.out[0].shape()), biased_, call);
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    const ConvGeometry g = geometry(in[0].shape, in[1].shape, out[0].shape);
    const double places =
        kind_ == Kind::transposed ? static_cast<double>(in[0].shape[1]) : static_cast<double>(g.y.height) * g.y.width;
    cost.flops = 2.0 * places * g.groups * g.out * g.in * g.kernel_height * g.kernel_width;
    return cost;
  }

 private:
  // Elements of one direction of the result, from those of x and of the kernel; an error where the kernel does not fit.
  Result<std::uint64_t> length(std::uint64_t n, std::uint64_t kernel) const {
    if (kind_ == Kind::causal || n == 0) return n;
    const std::uint64_t padding = 2ull * options_.padding;
    if (kind_ == Kind::transposed) {
      const std::uint64_t all = (n - 1) * options_.stride + kernel + out_padding_;
      if (all < padding) return fail("");
      return all - padding;
    }
    const std::uint64_t reach = options_.dilation * (kernel - 1) + 1;
    if (n + padding < reach) return fail("");
    return (n + padding - reach) / options_.stride + 1;
  }

  ConvGeometry geometry(const Shape& x, const Shape& w, const Shape& y) const {
    ConvGeometry g;
    g.kernel_width = u32(w.back());
    g.stride = options_.stride;
    g.dilation = options_.dilation;
    g.padding_left = options_.padding;
    g.groups = options_.groups;
    g.transposed = kind_ == Kind::transposed;
    if (kind_ == Kind::causal) {
      g.x = g.y = {1, u32(x[0]), 1, 0, u32(x[1])};
      g.groups = u32(x[1]);
      g.in = g.out = 1;
      g.padding_left = g.kernel_width - 1;
      return g;
    }
    const auto plane = [](const Shape& s) {
      return s.rank() == 2 ? ConvPlane{1, u32(s[1]), u32(s[1]), 0, 1}
                           : ConvPlane{u32(s[1]), u32(s[2]), u32(s[1] * s[2]), u32(s[2]), 1};
    };
    g.in = g.groups ? u32(x[0]) / g.groups : 0;
    g.out = g.transposed ? u32(w[1]) : g.groups ? u32(w[0]) / g.groups : 0;
    g.x = plane(x);
    g.y = plane(y);
    if (kind_ == Kind::two_channels_last) g.y = {u32(y[0]), u32(y[1]), 1, u32(y[1] * y[2]), u32(y[2])};
    if (w.rank() == 4) {
      g.kernel_height = u32(w[2]);
      g.padding_top = options_.padding;
    }
    return g;
  }

  Kind kind_;
  ConvOptions options_;
  std::uint32_t out_padding_;
  bool biased_;
};

Var conv(Kind kind, Var x, Var w, const ConvOptions& options, std::uint32_t out_padding = 0) {
  if (!x) return {};
  auto op = std::make_unique<Conv>(kind, options, out_padding);
  return options.bias ? x.graph()->add1(std::move(op), {x, w, options.bias}) : x.graph()->add1(std::move(op), {x, w});
}

}  // namespace

Var conv_1d(Var x, Var w, const ConvOptions& options) { return conv(Kind::one, x, w, options); }
Var conv_2d(Var x, Var w, const ConvOptions& options) { return conv(Kind::two, x, w, options); }
Var conv_2d_channels_last(Var x, Var w, const ConvOptions& options) {
  return conv(Kind::two_channels_last, x, w, options);
}
Var conv_1d_transposed(Var x, Var w, const TransposedConvOptions& options) {
  const ConvOptions common{
      .stride = options.stride, .padding = options.padding, .groups = options.groups, .bias = options.bias};
  return conv(Kind::transposed, x, w, common, options.out_padding);
}
Var causal_conv_1d(Var x, Var w) { return conv(Kind::causal, x, w, {}); }

}  // namespace rullama
