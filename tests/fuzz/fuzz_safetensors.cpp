// A safetensors file out of arbitrary bytes.
#include <cstdlib>

#include "formats/safetensors.h"
#include "padded_file.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rullama;
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const std::uint64_t more : {0, 4, 4096}) {
    const auto file = Safetensors::read(std::make_shared<fuzz::PaddedFile>(bytes, size + more));
    if (!file) {
      require(!file.error().message.empty());
      continue;
    }
    std::uint64_t held = 0;
    for (const SafetensorsTensor& t : file->tensors()) {
      require(file->tensor(t.name) == &t);
      require(t.offset <= size + more && t.bytes <= size + more - t.offset);
      held += t.bytes;
    }
    require(held <= size + more);
    for (const auto& [key, text] : file->metadata()) require(file->metadata(key) == &text);
  }
  return 0;
}
