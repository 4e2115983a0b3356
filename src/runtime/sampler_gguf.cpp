#include <algorithm>

#include "formats/gguf.h"
#include "runtime/sampler.h"

namespace rullama {
namespace {

Result<std::optional<float>> read_float(const Gguf& file, std::string_view key) {
  if (!file.find(key)) return std::nullopt;
  auto value = file.get_f32(key);
  if (!value) return failed(value);
  return *value;
}

// `if_negative` is what a negative number stands for.
Result<std::optional<std::uint32_t>> read_count(const Gguf& file, std::string_view key, std::uint32_t if_negative) {
  const GgufValue* entry = file.find(key);
  if (!entry) return std::nullopt;
  auto value = file.get_u64(key);
  if (value) return static_cast<std::uint32_t>(std::min<std::uint64_t>(*value, UINT32_MAX));
  if (entry->type == GgufType::i32 || entry->type == GgufType::i64) return if_negative;
  return failed(value);
}

}  // namespace

Result<SamplingDefaults> read_sampling_defaults(const Gguf& file) {
  SamplingDefaults defaults;
  const struct {
    std::string_view key;
    std::optional<float>& value;
  } floats[] = {{"general.sampling.temp", defaults.temperature},
                {"general.sampling.top_p", defaults.top_p},
                {"general.sampling.min_p", defaults.min_p},
                {"general.sampling.penalty_repeat", defaults.repeat_penalty}};
  for (const auto& [key, value] : floats) {
    auto found = read_float(file, key);
    if (!found) return failed(found);
    value = *found;
  }
  auto top_k = read_count(file, "general.sampling.top_k", 0);  // 0: all
  if (!top_k) return failed(top_k);
  defaults.top_k = *top_k;
  auto last_n = read_count(file, "general.sampling.penalty_last_n", UINT32_MAX);  // -1: the whole context
  if (!last_n) return failed(last_n);
  defaults.repeat_last_n = *last_n;
  return defaults;
}

}  // namespace rullama
