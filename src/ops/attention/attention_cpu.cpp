// The CPU forms: a plain one with sums in double (Precision::reference), and a streamed one in f32 whose inner loops
// are those of products, threaded over rows, heads and runs of keys.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/attention/attention_op.h"
#include "ops/attention/vector.h"
#include "ops/matmul/product_loops.h"

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
  void copy(std::uint32_t t, std::uint32_t g, float* to) const {
    const float* from = row(t, g, to);
    if (from != to) std::copy_n(from, sizes_.d, to);
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
constexpr std::uint32_t kRows = 8;    // rows that share them

// The softmax so far of one query: largest score, sum of exponentials relative to it. Their weighted values lie apart.
struct Stream {
  float most = -3e38f, sum = 0;
};

// Scores of `count` keys become their weights; those outside [from, to) weigh nothing. Returns the factor for the
// weighted values so far.
float add_scores(Stream& s, std::span<float> p, std::uint32_t from, std::uint32_t to) {
  float most = s.most;
  for (std::uint32_t j = from; j < to; j++) most = std::max(most, p[j]);
  const float shrink = most > s.most ? std::exp(s.most - most) : 1;
  s = {most, s.sum * shrink};
  for (std::uint32_t j = 0; j < p.size(); j++)
    if (j < from || j >= to) p[j] = -INFINITY;
  product_loops::exponentials(p.data(), p.size(), most);
  for (const float weight : p) s.sum += weight;
  return shrink;
}

void forward_streamed(const Setup& setup, const CpuCall& call) {
  const Sizes n(call.in[0].shape(), call.in[1].shape());
  if (n.rows == 0 || n.heads == 0) return;
  const Ranges ranges(setup, n, call.in.subspan(3));
  const KeyRows keys(call.in[1], n), values(call.in[2], n);
  const std::uint32_t blocks = (n.rows + kRows - 1) / kRows;
  // Few rows: the keys are cut, too, so that all threads have work. How many there are must change no bit.
  const Range last = ranges(n.rows - 1);
  const std::uint32_t units = blocks * n.kv_heads, wanted = 16;
  const std::uint32_t splits = std::clamp((wanted + units - 1) / units, 1u, (last.end - last.begin) / (4 * kBlock) + 1);
  const std::size_t queries = std::size_t{n.rows} * n.heads, width = product_loops::padded(n.d);
  std::vector<Stream> streams(queries * splits);
  std::vector<float> parts(splits > 1 ? queries * splits * n.d : 0);
  const auto part_of = [&](std::size_t query, std::size_t split) {
    return splits > 1 ? &parts[(query * splits + split) * n.d] : call.out[0].f32().data() + query * n.d;
  };

  call.crew.run(std::size_t{units} * splits, 1, [&](std::size_t unit_begin, std::size_t unit_end) {
    const std::size_t most_queries = std::size_t{std::min(kRows, n.rows)} * n.group;
    product_loops::AlignedFloats q(most_queries * width), k(kBlock * width), v(kBlock * width),
        p(most_queries * kBlock);
    for (std::size_t unit = unit_begin; unit < unit_end; unit++) {
      const auto split = static_cast<std::uint32_t>(unit % splits),
                 g = static_cast<std::uint32_t>(unit / splits % n.kv_heads);
      const auto row0 = static_cast<std::uint32_t>(unit / splits / n.kv_heads) * kRows;
      const std::uint32_t rows = std::min(kRows, n.rows - row0), count = rows * n.group;
      const auto query_of = [&](std::uint32_t i) {
        return std::size_t{row0 + i / n.group} * n.heads + std::size_t{g} * n.group + i % n.group;
      };
      Range all = ranges(row0), visible[kRows];
      for (std::uint32_t row = 0; row < rows; row++) {
        const Range r = visible[row] = ranges(row0 + row);
        all = {std::min(all.begin, r.begin), std::max(all.end, r.end)};
      }
      for (std::uint32_t i = 0; i < count; i++)
        std::copy_n(call.in[0].f32().data() + query_of(i) * n.d, n.d, q.data() + i * width);
      product_loops::AlignedFloats sums(count * width);
      const std::uint32_t piece = ((all.end - all.begin + splits - 1) / splits + kBlock - 1) / kBlock * kBlock;
      const std::uint32_t begin = std::min(all.begin + split * piece, all.end), end = std::min(begin + piece, all.end);
      for (std::uint32_t t0 = begin; t0 < end; t0 += kBlock) {
        const std::uint32_t now = std::min(kBlock, end - t0);
        for (std::uint32_t j = 0; j < now; j++) {
          keys.copy(t0 + j, g, k.data() + j * width);
          values.copy(t0 + j, g, v.data() + j * width);
        }
        product_loops::dot_floats(q.data(), width, count, k.data(), width, now, width, 0,
                                  {p.data(), nullptr, kBlock, setup.options.scale});
        for (std::uint32_t i = 0; i < count; i++) {
          const Range r = visible[i / n.group];
          const std::uint32_t from = std::clamp(r.begin, t0, t0 + now), to = std::clamp(r.end, from, t0 + now);
          const float shrink =
              add_scores(streams[query_of(i) * splits + split], {p.data() + i * kBlock, now}, from - t0, to - t0);
          if (shrink == 1) continue;
          for (std::size_t e = 0; e < width; e++) sums.data()[i * width + e] *= shrink;
        }
        product_loops::add_rows(p.data(), kBlock, 1, count, v.data(), now, width, sums.data());
      }
      for (std::uint32_t i = 0; i < count; i++) std::copy_n(sums.data() + i * width, n.d, part_of(query_of(i), split));
    }
  });

  for (std::size_t query = 0; query < queries; query++) {
    const std::span<const Stream> cut(&streams[query * splits], splits);
    float most = -3e38f, sum = 0;
    for (const Stream& s : cut) most = std::max(most, s.most);
    float* out = call.out[0].f32().data() + query * n.d;
    if (splits > 1) std::fill_n(out, n.d, 0.0f);
    for (std::size_t split = 0; split < splits; split++) {
      const float weight = cut[split].sum > 0 ? std::exp(cut[split].most - most) : 0;
      sum += weight * cut[split].sum;
      if (splits > 1) add_scaled(out, weight, part_of(query, split), n.d);
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
