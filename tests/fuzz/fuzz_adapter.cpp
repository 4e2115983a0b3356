// adapter_config.json and the names of an adapter's tensors out of arbitrary bytes.
#include <cstdlib>

#include "lora/adapter_file.h"
#include "lora/adapter_names.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rullama;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto settings = settings_from_json(text, "config")) {
    // what was understood is written so that it is understood again
    const auto again = settings_from_json(settings_to_json(*settings), "again");
    require(again && again->rank == settings->rank && again->modules == settings->modules);
  } else {
    require(!settings.error().message.empty());
  }
  const auto same = [](const std::optional<AdapterPlace>& a, const AdapterPlace& b) {
    return a && a->target == b.target && a->layer == b.layer && a->b == b.b;
  };
  if (const auto place = place_in_peft(text)) require(same(place_in_peft(peft_name(*place)), *place));
  if (const auto place = place_in_gguf(text)) require(same(place_in_gguf(gguf_name(*place)), *place));
  (void)place_in_rullama(text);
  return 0;
}
