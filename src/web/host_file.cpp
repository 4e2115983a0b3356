#include "web/host_file.h"

#include <algorithm>

#include "base/text.h"

namespace rullama::web {

namespace {

std::string last_error() {
  std::string text(1024, '\0');
  text.resize(std::min(host::rullama_host_error(0, text.data(), text.size()), text.size()));
  return text;
}

}  // namespace

Result<std::shared_ptr<HostFile>> HostFile::open(std::string_view name) {
  const host::Handle file = host::rullama_host_file_open(name.data(), name.size());
  if (!file)
    return fail(ErrorCode::not_found,
                cat("file ", quote(name), " of the page's storage cannot be opened: ", last_error()));
  return std::make_shared<HostFile>(std::string(name), file);
}

HostFile::HostFile(std::string name, host::Handle file)
    : name_(std::move(name)), file_(file), size_(static_cast<std::uint64_t>(host::rullama_host_file_size(file))) {}

HostFile::~HostFile() { host::rullama_host_file_close(file_); }

Result<> HostFile::read(std::uint64_t offset, std::span<std::byte> dst) const {
  if (offset > size_ || dst.size() > size_ - offset)
    return fail(cat("file ", quote(name_), " ends at byte ", size_, ", and ", dst.size(), " bytes at ", offset,
                    " are needed; it may be cut short: fetch it again"));
  const double got = host::rullama_host_file_read(file_, static_cast<double>(offset), dst.data(), dst.size());
  if (got != static_cast<double>(dst.size()))
    return fail(ErrorCode::io, cat("reading ", dst.size(), " bytes at ", offset, " of file ", quote(name_),
                                   " failed: ", last_error()));
  return {};
}

}  // namespace rullama::web
