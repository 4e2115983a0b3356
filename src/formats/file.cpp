#include "formats/file.h"

#include <cstring>

#include "base/text.h"

namespace rullama {

Result<> MemorySource::read(std::uint64_t offset, std::span<std::byte> dst) const {
  if (offset > bytes_.size() || dst.size() > bytes_.size() - offset)
    return fail(ErrorCode::io, cat(quoted(name_), " ends before byte ", offset + dst.size()));
  if (!dst.empty()) std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  return {};
}

}  // namespace rullama
