// Every tensor type that GGUF files may name, so that messages can speak of those this engine does not compute with.
#pragma once

#include <cstdint>
#include <string_view>

namespace rullama {

struct GgmlType {
  std::string_view name;  // empty: no such type, or one that was removed from the format
  std::uint32_t block_elements = 0, block_bytes = 0;
};

[[nodiscard]] GgmlType ggml_type(std::uint32_t id);

}  // namespace rullama
