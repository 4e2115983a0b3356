// A file of the page's private storage (OPFS) as a source of bytes.
#pragma once

#include <string_view>

#include "formats/file.h"
#include "host/host.h"

namespace rullama::web {

class HostFile final : public ByteSource {
 public:
  // The name of a file in the top folder of the page's storage. Waits.
  [[nodiscard]] static Result<std::shared_ptr<HostFile>> open(std::string_view name);
  // Takes over an open handle of the seam.
  HostFile(std::string name, host::Handle file);
  ~HostFile() override;
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;

  std::uint64_t size() const override { return size_; }
  Result<> read(std::uint64_t offset, std::span<std::byte> dst) const override;
  const std::string& name() const override { return name_; }

 private:
  std::string name_;
  host::Handle file_;
  std::uint64_t size_;
};

}  // namespace rullama::web
