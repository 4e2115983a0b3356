#include "ops/heads/heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"
#include "ops/heads/heads_op.h"
#include "ops/reduce/row_plan.h"
#include "ops/rope/turn.h"

namespace rullama {
namespace {

constexpr float kLargestHalf = 65504;

class HeadsToCache final : public Op {
 public:
  HeadsToCache(const HeadOptions& options, bool keys, bool factors)
      : o_(options), turn_(options.turn), keys_(keys), factors_(factors) {}
  std::string_view name() const override { return "heads_to_cache"; }
  std::uint32_t writes() const override { return keys_ ? 1u << kCacheK | 1u << kCacheV : 0; }

  // inputs: projected, q_norm, positions, [k_norm, cache_k, cache_v], [factors]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &x = in[0], &norm = in[1];
    if (norm.dtype != DType::F32 || norm.shape.rank() != 1) return bad_argument(name(), "q_norm", norm, "F32 [width]");
    const std::uint64_t d = norm.shape[0], kv = keys_ ? o_.n_kv_heads : 0;
    if (d % 2) return bad_argument(name(), "q_norm", norm, "an even head width");
    if (auto ok = check_turn(name(), turn_.options(), 1, d); !ok) return failed(ok);
    if (turn_.options().inverse) return fail(cat(name(), ": heads are turned forward only"));
    if (!(o_.eps > 0)) return fail(cat(name(), ": eps is ", o_.eps, ", expected more than 0"));
    if (o_.n_heads == 0 || (keys_ && kv == 0))
      return fail(cat(name(), ": ", o_.n_heads, " heads and ", kv, " of keys, expected at least 1"));
    const std::uint64_t two = (o_.n_heads + 2 * kv) * d, one = (o_.n_heads + kv) * d;
    if (x.dtype != DType::F32 || x.shape.rank() != 2 || (x.shape[1] != two && x.shape[1] != one))
      return bad_argument(name(), "projected", x,
                          kv ? cat("F32 [rows, ", two, "] or [rows, ", one, "]") : cat("F32 [rows, ", two, "]"));
    const TensorDesc positions{DType::U32, {x.shape[0]}}, factors{DType::F32, {turn_.half()}};
    if (in[2] != positions) return bad_argument(name(), "positions", in[2], positions.str());
    if (factors_ && in.back() != factors) return bad_argument(name(), "factors", in.back(), factors.str());
    if (keys_) {
      if (in[kKNorm] != norm) return bad_argument(name(), "k_norm", in[kKNorm], norm.str());
      if (auto ok = check_cache("cache_k", in[kCacheK], x.shape[0], d); !ok) return failed(ok);
      if (in[kCacheV] != in[kCacheK]) return bad_argument(name(), "cache_v", in[kCacheV], in[kCacheK].str());
    }
    return std::vector{TensorDesc{DType::F32, {x.shape[0], o_.n_heads, d}}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &x = call.in[0], &q = call.out[0];
    const std::size_t d = q.shape()[2], h = turn_.half(), nq = o_.n_heads, nk = keys_ ? o_.n_kv_heads : 0;
    const bool tied = x.shape()[1] == (nq + nk) * d;
    const float *q_norm = call.in[1].f32().data(), *factors = factors_ ? call.in.back().f32().data() : nullptr;
    call.crew.run(x.shape()[0], 1 + 8192 / (x.shape()[1] + 1), [&](std::size_t begin, std::size_t end) {
      std::vector<double> cosine(h), sine(h);
      std::vector<float> head(d);
      for (std::size_t t = begin; t < end; t++) {
        const std::uint32_t position = call.in[2].u32()[t];
        const float* xt = x.row(t).data();
        turn_.at(position, factors, cosine, sine);
        const auto turned = [&](const float* from, const float* weight, float* to) {
          norm(from, weight, d, head.data());
          for (std::size_t i = 0; i < h; i++) {
            to[i] = static_cast<float>(head[i] * cosine[i] - head[i + h] * sine[i]);
            to[i + h] = static_cast<float>(head[i] * sine[i] + head[i + h] * cosine[i]);
          }
          std::copy(head.begin() + static_cast<std::ptrdiff_t>(2 * h), head.end(), to + 2 * h);
        };
        for (std::size_t i = 0; i < nq; i++) turned(xt + i * d, q_norm, q.row(t * nq + i).data());
        std::vector<float> kept(d);
        for (std::size_t i = 0; i < nk; i++) {
          const float *key = xt + (nq + i) * d, *value = tied ? key : xt + (nq + nk + i) * d;
          turned(key, call.in[kKNorm].f32().data(), kept.data());
          store(call.in[kCacheK], position, i, kept);
          if (o_.value_norm)
            norm(value, nullptr, d, kept.data());
          else
            std::copy_n(value, d, kept.data());
          store(call.in[kCacheV], position, i, kept);
        }
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView &x = call.in[0], &q = call.out[0];
    const std::uint64_t d = q.shape()[2], rows = x.shape()[0], nk = keys_ ? o_.n_kv_heads : 0;
    const std::uint64_t heads = rows * (o_.n_heads + 2 * nk);
    if (heads == 0) return {};
    const GpuView &cache = keys_ ? call.in[kCacheK] : x, &k_norm = keys_ ? call.in[kKNorm] : call.in[1];
    if (cache.parts.size() != 1)
      return fail(cat(name(), ": a cache of ", cache.desc.str(), " is larger than the ",
                      bytes_text(static_cast<double>(call.caps.max_binding_bytes)),
                      " that this device binds at once; use a smaller context"));
    const bool half = cache.desc.dtype == DType::F16;
    const auto u = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
    const struct {
      std::uint32_t heads, q_heads, kv_heads, columns, d, slots;
      float position_scale, eps;
      std::uint32_t all_bits = 0xffffffff;
    } params{u(heads),
             o_.n_heads,
             u(nk),
             u(x.shape()[1] / d),
             u(d),
             u(keys_ ? cache.shape()[0] : 1),
             turn_.options().position_scale,
             o_.eps};
    RowPlan plan = plan_rows(call.caps, heads, d);
    plan.four = false;
    const auto source = [&] {
      return plan.source("ops/heads/heads.wgsl")
          .file(keys_ ? "ops/heads/heads_cache.wgsl" : "ops/heads/heads_queries.wgsl")
          .file("ops/rope/turn.wgsl")
          .file("ops/elementwise/functions.wgsl")
          .constant("HALF", turn_.half())
          .constant("FACTORS", factors_)
          .constant("HALVES", half)
          .constant("VALUE_NORM", o_.value_norm)
          .text(turn_.table());
    };
    const std::string key = plan.key(cat("heads_", turn_.key(), factors_ ? "_f" : "",
                                         !keys_ ? "_q"
                                         : half ? "_f16"
                                                : "",
                                         o_.value_norm ? "_v" : ""));
    const auto factors = read(factors_ ? call.in.back() : x);
    if (!keys_)
      return call.dispatch(key, source, {read(x), read(call.in[1]), read(k_norm), read(call.in[2]), factors, write(q)},
                           params, plan.grid(heads));
    return call.dispatch(key, source,
                         {read(x), read(call.in[1]), read(k_norm), read(call.in[2]), factors, write(q), write(cache),
                          write(call.in[kCacheV])},
                         params, plan.grid(heads));
  }

 private:
  static constexpr std::size_t kKNorm = 3, kCacheK = 4, kCacheV = 5;

  Result<> check_cache(std::string_view argument, const TensorDesc& cache, std::uint64_t rows, std::uint64_t d) const {
    const bool typed = cache.dtype == DType::F32 || cache.dtype == DType::F16;
    if (!typed || cache.shape.rank() != 3 || cache.shape[1] != o_.n_kv_heads || cache.shape[2] != d)
      return bad_argument(name(), argument, cache, cat("F32 or F16 [slots, ", o_.n_kv_heads, ", ", d, "]"));
    if (rows > cache.shape[0])
      return fail(cat(name(), ": ", rows, " rows do not fit into a cache of ", cache.shape[0], " slots"));
    return {};
  }

  void norm(const float* x, const float* weight, std::size_t d, float* y) const {
    double squares = 0;
    for (std::size_t i = 0; i < d; i++) squares += static_cast<double>(x[i]) * x[i];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(d) + o_.eps);
    for (std::size_t i = 0; i < d; i++) y[i] = static_cast<float>(x[i] * inverse * (weight ? weight[i] : 1.0f));
  }

  void store(const CpuView& cache, std::uint32_t position, std::size_t head, std::span<const float> x) const {
    const std::size_t at = (position % cache.shape()[0] * cache.shape()[1] + head) * x.size();
    if (cache.desc.dtype == DType::F32) {
      std::ranges::copy(x, cache.f32().data() + at);
      return;
    }
    auto* to = reinterpret_cast<std::uint16_t*>(cache.data) + at;
    for (std::size_t i = 0; i < x.size(); i++) to[i] = f32_to_f16(std::clamp(x[i], -kLargestHalf, kLargestHalf));
  }

  HeadOptions o_;
  Turn turn_;
  bool keys_, factors_;
};

}  // namespace

std::vector<Var> heads_inputs(const HeadInputs& in) {
  std::vector<Var> args{in.projected, in.q_norm, in.positions};
  if (in.cache_k) args.insert(args.end(), {in.k_norm, in.cache_k, in.cache_v});
  if (in.factors) args.push_back(in.factors);
  return args;
}

std::unique_ptr<Op> heads_op(const HeadOptions& options, bool keys, bool factors) {
  return std::make_unique<HeadsToCache>(options, keys, factors);
}

Var heads_to_cache(const HeadInputs& in, const HeadOptions& options) {
  if (!in.projected) return {};
  return in.projected.graph()->add(heads_op(options, bool(in.cache_k), bool(in.factors)), heads_inputs(in))[0];
}

}  // namespace rullama
