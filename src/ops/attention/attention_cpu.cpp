// The CPU forms: a plain one with sums in double (Precision::reference), and a streamed one in f32 whose inner loops
// are vectors of four lanes, threaded over rows, heads and runs of keys.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/attention/attention_op.h"
#include "ops/attention/vector.h"

namespace rullama::attention_detail {
namespace {

// The visible range of each row, from the range inputs.
class Ranges {
 public:
  Ranges(const Setup& setup, const Sizes& sizes, std::span<const CpuView> inputs)
      : mask_(setup.mask), window_(setup.options.window), sizes_(sizes) {
    if (mask_ != Mask::all) positions_ = inputs[0].u32();
    if (setup.range_inputs() > 1) bounds_ = inputs[1].u32();
  }

  [[nodiscard]] Range operator()(std::uint32_t row) const {
    if (mask_ == Mask::all) {
      if (window_ == 0) return {0, sizes_.slots};
      return clip({row + 1 > window_ ? row + 1 - window_ : 0, std::min(sizes_.slots, row + window_)});
    }
    const std::uint32_t p = positions_[row];
    if (mask_ == Mask::region && p >= bounds_[0]) return clip({last_before(bounds_[0]), positions_.back() + 1});
    const std::uint32_t begin = last_before(p);
    return clip({mask_ == Mask::packed ? std::max(begin, bounds_[row]) : begin, p + 1});
  }

 private:
  // The first of the window's positions that end with p.
  [[nodiscard]] std::uint32_t last_before(std::uint32_t p) const {
    return window_ != 0 && p + 1 > window_ ? p + 1 - window_ : 0;
  }
  static Range clip(Range r) { return {std::min(r.begin, r.end), r.end}; }

  Mask mask_;
  std::uint32_t window_;
  Sizes sizes_;
  std::span<std::uint32_t> positions_, bounds_;
};

// Rows of a key or value tensor as floats.
class KeyRows {
 public:
  KeyRows(const CpuView& view, const Sizes& sizes) : view_(view), sizes_(sizes) {}
  [[nodiscard]] bool halves() const { return view_.desc.dtype == DType::F16; }
  // Row of position t and head g: in place, or decoded into `room` of d floats.
  [[nodiscard]] const float* row(std::uint32_t t, std::uint32_t g, float* room) const {
    const std::size_t at = (std::size_t{t % sizes_.slots} * sizes_.kv_heads + g) * sizes_.d;
    if (!halves()) return view_.f32().data() + at;
    widen(reinterpret_cast<const std::uint16_t*>(view_.data) + at, room, sizes_.d);
    return room;
  }

 private:
  const CpuView& view_;
  Sizes sizes_;
};

float* row_of(const CpuView& view, const Sizes& n, std::size_t row, std::size_t head) {
  return view.f32().data() + (row * n.heads + head) * n.d;
}

double dot_double(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; i++) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void forward_reference(const Setup& setup, const CpuCall& call) {
  const Sizes n(call.in[0].shape(), call.in[1].shape());
  const Ranges ranges(setup, n, call.in.subspan(3));
  const KeyRows keys(call.in[1], n), values(call.in[2], n);
  call.crew.run(std::size_t{n.rows} * n.heads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<double> p, out(n.d);
    std::vector<float> room(n.d);
    for (std::size_t i = begin; i < end; i++) {
      const auto row = static_cast<std::uint32_t>(i / n.heads), head = static_cast<std::uint32_t>(i % n.heads);
      const Range r = ranges(row);
      const float* q = row_of(call.in[0], n, row, head);
      p.clear();
      double most = -INFINITY, sum = 0;
      for (std::uint32_t t = r.begin; t < r.end; t++) {
        p.push_back(setup.options.scale * dot_double(q, keys.row(t, head / n.group, room.data()), n.d));
        most = std::max(most, p.back());
      }
      for (double& x : p) sum += x = std::exp(x - most);
      std::fill(out.begin(), out.end(), 0.0);
      for (std::uint32_t t = r.begin; t < r.end; t++) {
        const float* v = values.row(t, head / n.group, room.data());
        for (std::size_t e = 0; e < n.d; e++) out[e] += p[t - r.begin] / sum * v[e];
      }
      for (std::size_t e = 0; e < n.d; e++) row_of(call.out[0], n, row, head)[e] = static_cast<float>(out[e]);
      call.out[1].f32()[i] = p.empty() ? 0 : static_cast<float>(most + std::log(sum));
    }
  });
}

// --- the streamed form

constexpr std::uint32_t kBlock = 32;  // keys that are decoded and scored together

// Softmax so far: largest score, sum of exponentials relative to it, weighted values.
struct Stream {
  float most, sum;
  float* out;
};

// Adds keys [begin, end), given as rows of floats, to the softmax of one query.
void add_keys(Stream& s, const float* q, float scale, std::span<const float* const> k, std::span<const float* const> v,
              std::size_t d) {
  float p[kBlock];
  float most = s.most;
  std::size_t j = 0;
  for (; j + 4 <= k.size(); j += 4) dot_four(q, &k[j], d, &p[j]);
  for (; j < k.size(); j++) p[j] = dot(q, k[j], d);
  for (j = 0; j < k.size(); j++) most = std::max(most, p[j] *= scale);
  if (most > s.most) {
    const float shrink = std::exp(s.most - most);
    s.sum *= shrink;
    for (std::size_t e = 0; e < d; e++) s.out[e] *= shrink;
    s.most = most;
  }
  for (j = 0; j < k.size(); j++) s.sum += p[j] = std::exp(p[j] - most);
  for (j = 0; j + 4 <= v.size(); j += 4) add_four(s.out, &p[j], &v[j], d);
  for (; j < v.size(); j++) add_scaled(s.out, p[j], v[j], d);
}

void forward_streamed(const Setup& setup, const CpuCall& call) {
  const Sizes n(call.in[0].shape(), call.in[1].shape());
  if (n.rows == 0 || n.heads == 0) return;
  const Ranges ranges(setup, n, call.in.subspan(3));
  const KeyRows keys(call.in[1], n), values(call.in[2], n);
  constexpr std::uint32_t kRows = 8;  // rows that share decoded keys
  const std::uint32_t blocks = (n.rows + kRows - 1) / kRows;
  // Few rows: the keys are cut, too, so that all threads have work.
  const Range last = ranges(n.rows - 1);
  const std::uint32_t units = blocks * n.kv_heads, wanted = 2 * static_cast<std::uint32_t>(call.crew.width());
  const std::uint32_t splits = std::clamp((wanted + units - 1) / units, 1u, (last.end - last.begin) / (4 * kBlock) + 1);
  const std::size_t queries = std::size_t{n.rows} * n.heads;
  std::vector<float> sums(queries * splits * 2), parts(splits > 1 ? queries * splits * n.d : 0);
  const auto part_of = [&](std::size_t query, std::size_t split) {
    float* out = splits > 1 ? &parts[(query * splits + split) * n.d] : call.out[0].f32().data() + query * n.d;
    return Stream{sums[(query * splits + split) * 2], sums[(query * splits + split) * 2 + 1], out};
  };

  call.crew.run(std::size_t{units} * splits, 1, [&](std::size_t unit_begin, std::size_t unit_end) {
    std::vector<float> room(keys.halves() ? std::size_t{2} * kBlock * n.d : 0);
    for (std::size_t unit = unit_begin; unit < unit_end; unit++) {
      const auto split = static_cast<std::uint32_t>(unit % splits),
                 g = static_cast<std::uint32_t>(unit / splits % n.kv_heads);
      const auto row0 = static_cast<std::uint32_t>(unit / splits / n.kv_heads) * kRows;
      const std::uint32_t row1 = std::min(row0 + kRows, n.rows);
      Range all = ranges(row0);
      for (std::uint32_t row = row0; row < row1; row++) {
        const Range r = ranges(row);
        all = {std::min(all.begin, r.begin), std::max(all.end, r.end)};
        for (std::uint32_t h = g * n.group; h < (g + 1) * n.group; h++) {
          const std::size_t query = std::size_t{row} * n.heads + h;
          sums[(query * splits + split) * 2] = -3e38f;
          std::memset(part_of(query, split).out, 0, n.d * sizeof(float));
        }
      }
      const std::uint32_t piece = ((all.end - all.begin + splits - 1) / splits + kBlock - 1) / kBlock * kBlock;
      const std::uint32_t begin = std::min(all.begin + split * piece, all.end), end = std::min(begin + piece, all.end);
      for (std::uint32_t t0 = begin; t0 < end; t0 += kBlock) {
        const std::uint32_t count = std::min(kBlock, end - t0);
        const float *k[kBlock], *v[kBlock];
        for (std::uint32_t j = 0; j < count; j++) {
          k[j] = keys.row(t0 + j, g, room.data() + std::size_t{j} * n.d);
          v[j] = values.row(t0 + j, g, room.data() + std::size_t{kBlock + j} * n.d);
        }
        for (std::uint32_t row = row0; row < row1; row++) {
          const Range r = ranges(row);
          const std::uint32_t from = std::max(r.begin, t0), to = std::min(r.end, t0 + count);
          if (from >= to) continue;
          for (std::uint32_t h = g * n.group; h < (g + 1) * n.group; h++) {
            const std::size_t query = std::size_t{row} * n.heads + h;
            Stream s = part_of(query, split);
            add_keys(s, row_of(call.in[0], n, row, h), setup.options.scale, {k + (from - t0), to - from},
                     {v + (from - t0), to - from}, n.d);
            sums[(query * splits + split) * 2] = s.most;
            sums[(query * splits + split) * 2 + 1] = s.sum;
          }
        }
      }
    }
  });

  for (std::size_t query = 0; query < queries; query++) {
    float most = -3e38f, sum = 0;
    for (std::size_t split = 0; split < splits; split++) most = std::max(most, part_of(query, split).most);
    float* out = call.out[0].f32().data() + query * n.d;
    if (splits > 1) std::memset(out, 0, n.d * sizeof(float));
    for (std::size_t split = 0; split < splits; split++) {
      const Stream s = part_of(query, split);
      const float weight = s.sum > 0 ? std::exp(s.most - most) : 0;
      sum += weight * s.sum;
      if (splits > 1) add_scaled(out, weight, s.out, n.d);
    }
    const float inverse = sum > 0 ? 1 / sum : 0;
    for (std::size_t e = 0; e < n.d; e++) out[e] *= inverse;
    call.out[1].f32()[query] = sum > 0 ? most + std::log(sum) : 0;
  }
}

// --- gradients, over sums of type Sum: double for the reference, float else

template <class Sum>
Sum product(const float* a, const float* b, std::size_t n) {
  if constexpr (std::is_same_v<Sum, double>)
    return dot_double(a, b, n);
  else
    return dot(a, b, n);
}

template <class Sum>
void backward_q(const Setup& setup, const CpuCall& call) {
  const Sizes n(call.in[0].shape(), call.in[1].shape());
  const CpuView &q = call.in[0], &out = call.in[3], &lse = call.in[4], &dout = call.in[5];
  const Ranges ranges(setup, n, call.in.subspan(6));
  const KeyRows keys(call.in[1], n), values(call.in[2], n);
  call.crew.run(std::size_t{n.rows} * n.heads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<Sum> dq(n.d);
    for (std::size_t i = begin; i < end; i++) {
      const std::size_t row = i / n.heads, head = i % n.heads;
      const auto g = static_cast<std::uint32_t>(head / n.group);
      const Range r = ranges(static_cast<std::uint32_t>(row));
      const float *qr = row_of(q, n, row, head), *dr = row_of(dout, n, row, head);
      const Sum delta = product<Sum>(dr, row_of(out, n, row, head), n.d), log_sum = lse.f32()[i];
      std::fill(dq.begin(), dq.end(), Sum{0});
      for (std::uint32_t t = r.begin; t < r.end; t++) {
        const float* k = keys.row(t, g, nullptr);
        const Sum p = std::exp(setup.options.scale * product<Sum>(qr, k, n.d) - log_sum);
        const Sum ds = p * (product<Sum>(dr, values.row(t, g, nullptr), n.d) - delta) * setup.options.scale;
        for (std::size_t e = 0; e < n.d; e++) dq[e] += ds * k[e];
      }
      for (std::size_t e = 0; e < n.d; e++) row_of(call.out[0], n, row, head)[e] = static_cast<float>(dq[e]);
      call.out[1].f32()[2 * i] = static_cast<float>(log_sum);
      call.out[1].f32()[2 * i + 1] = static_cast<float>(delta);
    }
  });
}

template <class Sum>
void backward_kv(const Setup& setup, const CpuCall& call) {
  const Sizes n(call.in[0].shape(), call.in[1].shape());
  const CpuView &q = call.in[0], &stats = call.in[3], &dout = call.in[4];
  const Ranges ranges(setup, n, call.in.subspan(5));
  const KeyRows keys(call.in[1], n), values(call.in[2], n);
  call.crew.run(std::size_t{n.slots} * n.kv_heads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<Sum> dk(n.d), dv(n.d);
    for (std::size_t i = begin; i < end; i++) {
      const auto t = static_cast<std::uint32_t>(i / n.kv_heads), g = static_cast<std::uint32_t>(i % n.kv_heads);
      const float *k = keys.row(t, g, nullptr), *v = values.row(t, g, nullptr);
      std::fill(dk.begin(), dk.end(), Sum{0});
      std::fill(dv.begin(), dv.end(), Sum{0});
      for (std::uint32_t row = 0; row < n.rows; row++) {
        if (!ranges(row).has(t)) continue;
        for (std::size_t head = g * n.group; head < (g + 1) * n.group; head++) {
          const float *qr = row_of(q, n, row, head), *dr = row_of(dout, n, row, head);
          const float* stat = stats.f32().data() + 2 * (row * n.heads + head);
          const Sum p = std::exp(setup.options.scale * product<Sum>(qr, k, n.d) - static_cast<Sum>(stat[0]));
          const Sum ds = p * (product<Sum>(dr, v, n.d) - static_cast<Sum>(stat[1])) * setup.options.scale;
          for (std::size_t e = 0; e < n.d; e++) dk[e] += ds * qr[e];
          for (std::size_t e = 0; e < n.d; e++) dv[e] += p * dr[e];
        }
      }
      for (std::size_t e = 0; e < n.d; e++) call.out[0].f32()[i * n.d + e] = static_cast<float>(dk[e]);
      for (std::size_t e = 0; e < n.d; e++) call.out[1].f32()[i * n.d + e] = static_cast<float>(dv[e]);
    }
  });
}

}  // namespace

void forward_cpu(const Setup& setup, const CpuCall& call) {
  call.precision == Precision::reference ? forward_reference(setup, call) : forward_streamed(setup, call);
}

void backward_q_cpu(const Setup& setup, const CpuCall& call) {
  call.precision == Precision::reference ? backward_q<double>(setup, call) : backward_q<float>(setup, call);
}

void backward_kv_cpu(const Setup& setup, const CpuCall& call) {
  call.precision == Precision::reference ? backward_kv<double>(setup, call) : backward_kv<float>(setup, call);
}

void probabilities_cpu(const Setup& setup, const CpuCall& call) {
  const Sizes n(call.in[0].shape(), call.in[1].shape());
  const Ranges ranges(setup, n, call.in.subspan(3));
  const KeyRows keys(call.in[1], n);
  const auto lse = call.in[2].f32();
  call.crew.run(std::size_t{n.rows} * n.heads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<float> room(n.d);
    for (std::size_t i = begin; i < end; i++) {
      const auto row = static_cast<std::uint32_t>(i / n.heads), g = static_cast<std::uint32_t>(i % n.heads) / n.group;
      float* p = call.out[0].f32().data() + i * n.slots;
      std::memset(p, 0, n.slots * sizeof(float));
      const Range r = ranges(row);
      for (std::uint32_t t = r.begin; t < r.end; t++) {
        const double s =
            setup.options.scale * dot_double(call.in[0].f32().data() + i * n.d, keys.row(t, g, room.data()), n.d);
        p[t % n.slots] = static_cast<float>(std::exp(s - lse[i]));
      }
    }
  });
}

}  // namespace rullama::attention_detail
