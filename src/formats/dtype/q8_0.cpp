#include "formats/dtype/q8_0.h"

#include "formats/dtype/search.h"

namespace rullama::codecs {

void decode_q8_0(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q8_0>(s, n, d); }

void encode_q8_0(const float* src, std::size_t blocks, std::byte* dst) {
  for (; blocks--; src += 32, dst += Q8_0::kBytes) {
    const Run<32> run(src);
    Codes codes{-128, 127};
    std::uint16_t step = 0;
    if (const auto found = find_step(run, codes)) {
      step = *found;
    } else {
      codes.low = -127;  // as everyone writes it: some products of bytes take no -128
      const auto searched = search_step(run, codes, 1, 2);
      Best<32> best{run, codes};
      for (const Line& line : {searched.plain, searched.line}) best.try_line({f16_to_f32(to_half(line.step)), 0});
      step = to_half(best.line.step);
    }
    store16(dst, step);
    const auto q = codes_of(run, {f16_to_f32(step), 0}, codes);
    for (std::size_t i = 0; i < 32; i++) dst[2 + i] = static_cast<std::byte>(q[i]);
  }
}

}  // namespace rullama::codecs
