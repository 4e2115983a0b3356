#include "host/native/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace rullama {
namespace {

std::unexpected<Error> writing_failed(const std::string& path) {
  return fail(ErrorCode::io, cat("writing ", quote(path, 200), " failed: ", std::strerror(errno)));
}

}  // namespace

Result<FileWriter> FileWriter::create(const std::string& path) {
  std::string temporary = path + ".XXXXXX";
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return writing_failed(path);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(descriptor, 0666 & ~mask);  // as a plainly created file would have it
  return FileWriter(path, std::move(temporary), descriptor);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

FileWriter::~FileWriter() { discard(); }

void FileWriter::discard() {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  ::unlink(temporary_.c_str());
}

Result<> FileWriter::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(descriptor_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return writing_failed(path_);
    data = data.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<> FileWriter::commit(bool flush) {
  if (flush && ::fsync(descriptor_) != 0) return writing_failed(path_);
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed == 0 && std::rename(temporary_.c_str(), path_.c_str()) == 0) return {};
  auto error = writing_failed(path_);
  ::unlink(temporary_.c_str());
  return error;
}

}  // namespace rullama
