#include "formats/dtype.h"

#include <cmath>

#include "base/text.h"
#include "formats/dtype/codecs.h"

namespace rullama {
namespace {

using namespace codecs;

constexpr std::uint16_t kOne[] = {2}, kQ8_0[] = {2, 32}, kQ4_0[] = {2, 16}, kQ4_1[] = {4, 16}, kQ5_0[] = {2, 4, 16},
                        kQ5_1[] = {4, 4, 16}, kQ4_K[] = {16, 128}, kQ5_K[] = {16, 32, 128}, kQ6_K[] = {128, 64, 16, 2},
                        kWord[] = {4};

// In the order of DType.
constexpr DTypeInfo kTypes[kDTypeCount] = {
    {"F32", 0, 1, 4, false, kWord, nullptr, decode_f32, encode_f32},
    {"F16", 1, 1, 2, false, kOne, nullptr, decode_f16, encode_f16},
    {"BF16", 30, 1, 2, false, kOne, nullptr, decode_bf16, encode_bf16},
    {"Q8_0", 8, 32, 34, true, kQ8_0, nullptr, decode_q8_0, encode_q8_0},
    {"Q4_0", 2, 32, 18, true, kQ4_0, nullptr, decode_q4_0, encode_q4_0},
    {"Q4_1", 3, 32, 20, true, kQ4_1, nullptr, decode_q4_1, encode_q4_1},
    {"Q5_0", 6, 32, 22, true, kQ5_0, nullptr, decode_q5_0, encode_q5_0},
    {"Q5_1", 7, 32, 24, true, kQ5_1, nullptr, decode_q5_1, encode_q5_1},
    {"Q4_K", 12, 256, 144, true, kQ4_K, regroup_q4_k, decode_q4_k, encode_q4_k},
    {"Q5_K", 13, 256, 176, true, kQ5_K, regroup_q5_k, decode_q5_k, encode_q5_k},
    {"Q6_K", 14, 256, 210, true, kQ6_K, regroup_q6_k, decode_q6_k, encode_q6_k},
    {"U32", UINT32_MAX, 1, 4, false, kWord, nullptr, nullptr, nullptr},  // positions and ids; no weight format
};

}  // namespace

const DTypeInfo& info(DType type) { return kTypes[static_cast<std::size_t>(type)]; }

std::optional<DType> dtype_of_ggml(std::uint32_t ggml_id) {
  for (std::size_t i = 0; i + 1 < kDTypeCount; i++)
    if (kTypes[i].ggml_id == ggml_id) return static_cast<DType>(i);
  return {};
}

std::optional<DType> dtype_of_name(std::string_view name) {
  for (std::size_t i = 0; i + 1 < kDTypeCount; i++)
    if (kTypes[i].name == name) return static_cast<DType>(i);
  return {};
}

Result<> encode(DType type, std::span<const float> values, std::span<std::byte> out) {
  const DTypeInfo& format = info(type);
  if (!format.encode || values.size() % format.block_elements != 0 || out.size() != row_bytes(type, values.size()))
    return fail(cat(values.size(), " values cannot be stored as ", out.size(), " bytes of ", format.name));
  for (const float v : values)
    if (!std::isfinite(v))
      return fail(
          cat("a value is ", std::isnan(v) ? "no number" : "infinite", ", which ", format.name, " cannot hold"));
  format.encode(values.data(), values.size() / format.block_elements, out.data());
  return {};
}

}  // namespace rullama
