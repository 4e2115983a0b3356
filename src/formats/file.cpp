#include "formats/file.h"

#include <cstring>

#include "base/text.h"

namespace rullama {

Result<> MemorySource::read(std::uint64_t offset, std::span<std::byte> dst) const {
  if (offset > bytes_.size() || dst.size() > bytes_.size() - offset)
    return fail(ErrorCode::io, cat(quote(name_), " ends before byte ", offset + dst.size()));
  if (!dst.empty()) std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  return {};
}

Result<> LimitedSink::write(std::span<const std::byte> data) {
  if (data.size() > left_) return fail("more data than the tensor's shape and type hold");
  left_ -= data.size();
  return sink_.write(data);
}

}  // namespace rullama
