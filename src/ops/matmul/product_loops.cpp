#include "ops/matmul/product_loops.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/dtype/q4_k_q5_k.h"
#include "formats/dtype/q4_q5.h"
#include "formats/dtype/q6_k.h"
#include "formats/dtype/q8_0.h"

// Each target costs compile time: on x86, these are the ones that make little difference.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul/product_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after it
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace rullama::product_loops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

const hn::CappedTag<float, kPad> kFloats;
using Floats = hn::Vec<decltype(kFloats)>;
// Codes come 16 at a time.
const hn::CappedTag<std::int16_t, 16> kShorts;
const hn::CappedTag<std::int32_t, 8> kInts;
const hn::CappedTag<float, 8> kCodeFloats;

// Calls f with the block type of a quantised format.
template <class F>
HWY_INLINE bool with_block(DType dtype, const F& f) {
  switch (dtype) {
    case DType::Q8_0: f(codecs::Q8_0{}); return true;
    case DType::Q4_0: f(codecs::Q4_0{}); return true;
    case DType::Q4_1: f(codecs::Q4_1{}); return true;
    case DType::Q5_0: f(codecs::Q5_0{}); return true;
    case DType::Q5_1: f(codecs::Q5_1{}); return true;
    case DType::Q4_K: f(codecs::Q4_K{}); return true;
    case DType::Q5_K: f(codecs::Q5_K{}); return true;
    case DType::Q6_K: f(codecs::Q6_K{}); return true;
    default: return false;
  }
}

HWY_INLINE void finish(const Output& output, std::size_t m, std::size_t n, float sum) {
  const std::size_t at = m * output.stride + n;
  output.data[at] = output.scale * sum + (output.plus ? output.plus[at] : 0.0f);
}

// --- few rows: codes times codes

// A half's bits as a float.
HWY_INLINE float half_to_float(std::uint16_t bits) {
  const hn::CappedTag<float, 4> floats;
  const hn::Rebind<hwy::float16_t, decltype(floats)> halves;
  const hn::Rebind<std::uint16_t, decltype(floats)> shorts;
  return hn::GetLane(hn::PromoteTo(floats, hn::BitCast(halves, hn::Set(shorts, bits))));
}

// The sum of products of 16 codes with 16-bit ones.
HWY_INLINE hn::Vec<decltype(kInts)> dot16(const codecs::SignedBytes16& codes, const std::int16_t* x) {
  const hn::Rebind<std::int8_t, decltype(kShorts)> bytes;
  const auto* b = reinterpret_cast<const std::int8_t*>(&codes);
  auto sum = hn::Zero(kInts), other = hn::Zero(kInts);
  for (std::size_t i = 0; i < 16; i += hn::Lanes(kShorts))
    sum = hn::ReorderWidenMulAccumulate(kInts, hn::PromoteTo(kShorts, hn::LoadU(bytes, b + i)),
                                        hn::LoadU(kShorts, x + i), sum, other);
  return hn::Add(sum, other);
}

constexpr int kAhead = 2048;  // bytes: rows are read once and in order, faster than they are fetched unasked

template <class Block, int kRows>
void dot_code_rows(const Codes& x, const Weight& w, std::size_t first, std::size_t last, std::size_t column0,
                   const Output& output) {
  constexpr int kRuns = Block::kElements / 32, kUnrolled = kRuns == 1 ? 8 : kRuns;
  const std::size_t runs = w.columns / 32;
  for (std::size_t n = first; n < last; n++) {
    const std::byte* src = w.row(n);
    hn::Vec<decltype(kCodeFloats)> sums[kRows][2];  // two a row, so that additions overlap
    float offsets[kRows] = {};
    for (auto& row : sums) row[0] = row[1] = hn::Zero(kCodeFloats);
    const auto add_run = [&](std::size_t run0, int i) HWY_ATTR __attribute__((always_inline)) {
      const codecs::Codes32 c = Block::unpack32(src + i / kRuns * Block::kBytes, i % kRuns);
      const float d = half_to_float(c.d);
      const std::size_t run = run0 + static_cast<std::size_t>(i);
      for (int m = 0; m < kRows; m++) {
        const std::int16_t* codes = x.codes + m * w.columns + 32 * run;
        const float scale = d * x.scales[m * runs + run];
        auto& sum = sums[m][i % 2];
        const auto low = dot16(c.low, codes), high = dot16(c.high, codes + 16);
        if (Block::kOneScale) {
          sum =
              hn::MulAdd(hn::ConvertTo(kCodeFloats, hn::Add(low, high)), hn::Set(kCodeFloats, c.low_step * scale), sum);
        } else {
          sum = hn::MulAdd(hn::ConvertTo(kCodeFloats, low), hn::Set(kCodeFloats, c.low_step * scale), sum);
          sum = hn::MulAdd(hn::ConvertTo(kCodeFloats, high), hn::Set(kCodeFloats, c.high_step * scale), sum);
        }
        if (Block::kOffset) offsets[m] += half_to_float(c.m) * c.offset_step * x.sums[m * runs + run];
      }
    };
    std::size_t run = 0;
    constexpr int kStep = kUnrolled / kRuns * Block::kBytes;
    for (; run + kUnrolled <= runs; run += kUnrolled, src += kStep) {
      for (int i = 0; i < kStep; i += 64) hwy::Prefetch(src + kAhead + i);
#if HWY_COMPILER_CLANG
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 8
#endif
      for (int i = 0; i < kUnrolled; i++) add_run(run, i);
    }
    for (; run < runs; run++, src += Block::kBytes) add_run(run, 0);
    for (int m = 0; m < kRows; m++)
      finish(output, m, column0 + n - first,
             hn::GetLane(hn::SumOfLanes(kCodeFloats, hn::Add(sums[m][0], sums[m][1]))) + offsets[m]);
  }
}

void DotCodes(const Codes& x, const Weight& w, std::size_t first, std::size_t last, std::size_t column0,
              const Output& output) {
  with_block(w.dtype, [&](auto block) HWY_ATTR {
    using Block = decltype(block);
    switch (x.rows) {
      case 1: return dot_code_rows<Block, 1>(x, w, first, last, column0, output);
      case 2: return dot_code_rows<Block, 2>(x, w, first, last, column0, output);
      case 3: return dot_code_rows<Block, 3>(x, w, first, last, column0, output);
      default: return;
    }
  });
}

void EncodeRow(const float* x, std::size_t columns, std::int16_t* codes, float* scales, float* sums) {
  for (std::size_t run = 0; run < columns / 32; run++, x += 32, codes += 32) {
    std::uint32_t bits = 0;  // of the largest absolute value; those of what is no number are above all numbers'
    for (int i = 0; i < 32; i++) {
      const auto absolute = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
      bits = bits < absolute ? absolute : bits;
    }
    if (bits >= 0x7f800000u) {
      std::fill_n(codes, 32, std::int16_t{0});
      scales[run] = sums[run] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    const float scale = std::bit_cast<float>(bits) / 32767, inverse = scale > 0 ? 1 / scale : 0;
    int sum = 0;
    for (int i = 0; i < 32; i++) {
      const float scaled = x[i] * inverse;
      const int code = static_cast<int>(scaled + (scaled < 0 ? -0.5f : 0.5f));
      codes[i] = static_cast<std::int16_t>(code > 32767 ? 32767 : code < -32767 ? -32767 : code);
      sum += codes[i];
    }
    scales[run] = scale;
    sums[run] = scale * static_cast<float>(sum);
  }
}

// --- decoding

void DecodePart(const Weight& w, std::size_t row, std::size_t begin, std::size_t columns, float* out) {
  const std::byte* src = w.row(row);
  if (with_block(w.dtype, [&](auto block) HWY_ATTR {
        using Block = decltype(block);
        codecs::decode_blocks<Block>(src + begin / Block::kElements * Block::kBytes, columns / Block::kElements, out);
      }))
    return;
  if (w.dtype == DType::F32) {
    std::memcpy(out, src + 4 * begin, 4 * columns);
  } else if (w.dtype == DType::F16) {
    for (std::size_t i = 0; i < columns; i++) out[i] = codecs::load_half(src + 2 * (begin + i));
  } else {
    for (std::size_t i = 0; i < columns; i++) out[i] = bf16_to_f32(codecs::load16(src + 2 * (begin + i)));
  }
}

void DecodeRows(const Weight& w, std::size_t first, std::size_t count, float* out, std::size_t stride) {
  for (std::size_t r = 0; r < count; r++, out += stride) {
    DecodePart(w, first + r, 0, w.columns, out);
    for (std::size_t i = w.columns; i < stride; i++) out[i] = 0;
  }
}

constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64;  // 32, not 16

// --- floats: tiles of dot products. Every result has one vector of sums, whatever the tile, so that splitting the rows
// of x differently changes no bit.

// The sums of the lanes of four vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void sum_lanes(const Floats* v, float* sums) {
  for (int i = 0; i < 4; i++) sums[i] = hn::GetLane(v[i]);
}
#else
template <class D>
HWY_INLINE void store_sum_of_blocks(D d, hn::Vec<D> v, float* sums) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, sums);
  } else {
    const hn::Half<D> half;
    store_sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), sums);
  }
}
HWY_INLINE void sum_lanes(const Floats* v, float* sums) {
  const hn::Repartition<std::uint64_t, decltype(kFloats)> pairs;
  const auto two = [&](Floats a, Floats b) HWY_ATTR {
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(kFloats, a, b), hn::InterleaveUpper(kFloats, a, b)));
  };
  const auto a = two(v[0], v[1]), b = two(v[2], v[3]);
  const auto low = hn::InterleaveLower(pairs, a, b), high = hn::InterleaveUpper(pairs, a, b);
  store_sum_of_blocks(kFloats, hn::Add(hn::BitCast(kFloats, low), hn::BitCast(kFloats, high)), sums);
}
#endif

// Where rows of x and of w begin, and how far their next ones are.
struct Rows {
  const float *x, *w;
  std::size_t x_stride, w_stride, columns;
};

template <int kRows, int kColumns>
HWY_INLINE void tile(const Rows& rows, std::size_t m, std::size_t n, std::size_t column0, const Output& output) {
  constexpr int kFours = (kColumns + 3) / 4 * 4;
  const float *x = rows.x + m * rows.x_stride, *w = rows.w + n * rows.w_stride;
  Floats sums[kRows][kFours];
  for (auto& row : sums)
    for (Floats& sum : row) sum = hn::Zero(kFloats);
  for (std::size_t i = 0; i < rows.columns; i += hn::Lanes(kFloats)) {
    Floats b[kColumns];
    for (int c = 0; c < kColumns; c++) b[c] = hn::LoadU(kFloats, w + c * rows.w_stride + i);
    for (int r = 0; r < kRows; r++) {
      const Floats a = hn::LoadU(kFloats, x + r * rows.x_stride + i);
      for (int c = 0; c < kColumns; c++) sums[r][c] = hn::MulAdd(a, b[c], sums[r][c]);
    }
  }
  for (int r = 0; r < kRows; r++)
    for (int c = 0; c < kColumns; c += 4) {
      float four[4];
      sum_lanes(&sums[r][c], four);
      for (int i = 0; i < 4 && c + i < kColumns; i++) finish(output, m + r, column0 + n + c + i, four[i]);
    }
}

// All columns for kRows rows.
template <int kRows, int kColumns>
HWY_INLINE void strip(const Rows& rows, std::size_t m, std::size_t count, std::size_t column0, const Output& output) {
  std::size_t n = 0;
  for (; n + kColumns <= count; n += kColumns) tile<kRows, kColumns>(rows, m, n, column0, output);
  for (; n < count; n++) tile<kRows, 1>(rows, m, n, column0, output);
}

void DotFloats(const float* x, std::size_t x_stride, std::size_t rows, const float* w, std::size_t w_stride,
               std::size_t count, std::size_t columns, std::size_t column0, const Output& output) {
  // Long rows in parts, of which a tile's stay in the first cache; the sums of a part are added to those before.
  const std::size_t parts = (columns + 1023) / 1024, part = parts ? padded((columns + parts - 1) / parts) : 0;
  for (std::size_t begin = 0; begin < columns; begin += part) {
    const Rows now{x + begin, w + begin, x_stride, w_stride, part < columns - begin ? part : columns - begin};
    Output to = output;
    if (begin > 0) to.plus = to.data;
    std::size_t m = 0;
    if constexpr (kManyRegisters)
      for (; m + 6 <= rows; m += 6) strip<6, 4>(now, m, count, column0, to);
    for (; m + 4 <= rows; m += 4) strip<4, 3>(now, m, count, column0, to);
    switch (rows - m) {
      case 3: strip<3, 3>(now, m, count, column0, to); break;
      case 2: strip<2, 4>(now, m, count, column0, to); break;
      case 1: strip<1, 8>(now, m, count, column0, to); break;
      default: break;
    }
  }
}

// --- floats: sums of rows

template <int kRows, int kVectors>
HWY_INLINE void add_tile(const float* a, std::size_t row_step, std::size_t term_step, const float* w, std::size_t terms,
                         std::size_t columns, float* sums) {
  const std::size_t lanes = hn::Lanes(kFloats);
  Floats s[kRows][kVectors];
  for (int r = 0; r < kRows; r++)
    for (int v = 0; v < kVectors; v++) s[r][v] = hn::LoadU(kFloats, sums + r * columns + v * lanes);
  for (std::size_t t = 0; t < terms; t++) {
    Floats b[kVectors];
    for (int v = 0; v < kVectors; v++) b[v] = hn::LoadU(kFloats, w + t * columns + v * lanes);
    for (int r = 0; r < kRows; r++) {
      const Floats factor = hn::Set(kFloats, a[r * row_step + t * term_step]);
      for (int v = 0; v < kVectors; v++) s[r][v] = hn::MulAdd(factor, b[v], s[r][v]);
    }
  }
  for (int r = 0; r < kRows; r++)
    for (int v = 0; v < kVectors; v++) hn::StoreU(s[r][v], kFloats, sums + r * columns + v * lanes);
}

template <int kRows>
HWY_INLINE void add_strip(const float* a, std::size_t row_step, std::size_t term_step, const float* w,
                          std::size_t terms, std::size_t columns, float* sums) {
  const std::size_t lanes = hn::Lanes(kFloats);
  std::size_t n = 0;
  for (; n + 2 * lanes <= columns; n += 2 * lanes)
    add_tile<kRows, 2>(a, row_step, term_step, w + n, terms, columns, sums + n);
  for (; n < columns; n += lanes) add_tile<kRows, 1>(a, row_step, term_step, w + n, terms, columns, sums + n);
}

void AddRows(const float* a, std::size_t row_step, std::size_t term_step, std::size_t rows, const float* w,
             std::size_t terms, std::size_t columns, float* sums) {
  std::size_t m = 0;
  for (; m + 4 <= rows; m += 4)
    add_strip<4>(a + m * row_step, row_step, term_step, w, terms, columns, sums + m * columns);
  for (; m < rows; m++) add_strip<1>(a + m * row_step, row_step, term_step, w, terms, columns, sums + m * columns);
}

// --- elements

// Calls f(d, i) with vectors of elements from i on, the last ones one by one.
template <class F>
HWY_INLINE void over(std::size_t n, const F& f) {
  std::size_t i = 0;
  for (; i + hn::Lanes(kFloats) <= n; i += hn::Lanes(kFloats)) f(kFloats, i);
  for (; i < n; i++) f(hn::CappedTag<float, 1>(), i);
}

void Exponentials(float* x, std::size_t n, float most) {
  over(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, most));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v)), d, x + i);
  });
}

// x / (1 + exp(-2 u)), u being what the tanh is taken of
void GeluProduct(const float* gate, const float* up, std::size_t n, float* y) {
  over(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, gate + i);
    const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
    const auto u = hn::Mul(hn::Mul(x, cubic), hn::Set(d, -2 * 0.7978845608f));
    const auto exponential = hn::Exp(d, hn::Max(hn::Min(u, hn::Set(d, 40.0f)), hn::Set(d, -40.0f)));
    hn::StoreU(hn::Mul(hn::Div(x, hn::Add(hn::Set(d, 1.0f), exponential)), hn::LoadU(d, up + i)), d, y + i);
  });
}

}  // namespace rullama::product_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rullama::product_loops {

HWY_EXPORT(DotCodes);
HWY_EXPORT(EncodeRow);
HWY_EXPORT(DecodePart);
HWY_EXPORT(DecodeRows);
HWY_EXPORT(DotFloats);
HWY_EXPORT(AddRows);
HWY_EXPORT(Exponentials);
HWY_EXPORT(GeluProduct);

void dot_codes(const Codes& x, const Weight& w, std::size_t first, std::size_t last, std::size_t column0,
               const Output& output) {
  HWY_DYNAMIC_DISPATCH(DotCodes)(x, w, first, last, column0, output);
}
void encode_row(const float* x, std::size_t columns, std::int16_t* codes, float* scales, float* sums) {
  HWY_DYNAMIC_DISPATCH(EncodeRow)(x, columns, codes, scales, sums);
}
void decode_part(const Weight& w, std::size_t row, std::size_t begin, std::size_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodePart)(w, row, begin, columns, out);
}
void decode_rows(const Weight& w, std::size_t first, std::size_t count, float* out, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(DecodeRows)(w, first, count, out, stride);
}
void dot_floats(const float* x, std::size_t x_stride, std::size_t rows, const float* w, std::size_t w_stride,
                std::size_t count, std::size_t columns, std::size_t column0, const Output& output) {
  HWY_DYNAMIC_DISPATCH(DotFloats)(x, x_stride, rows, w, w_stride, count, columns, column0, output);
}
void add_rows(const float* a, std::size_t row_step, std::size_t term_step, std::size_t rows, const float* w,
              std::size_t terms, std::size_t columns, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddRows)(a, row_step, term_step, rows, w, terms, columns, sums);
}
void exponentials(float* x, std::size_t n, float most) { HWY_DYNAMIC_DISPATCH(Exponentials)(x, n, most); }
void gelu_product(const float* gate, const float* up, std::size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluProduct)(gate, up, n, y);
}

}  // namespace rullama::product_loops
#endif
