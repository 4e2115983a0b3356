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
  struct stat target{};
  if (::stat(path.c_str(), &target) == 0 && !S_ISREG(target.st_mode)) {  // a device or a pipe stays what it is
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return writing_failed(path);
    return FileWriter(path, "", descriptor);
  }
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
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
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
  const bool in_place = temporary_.empty();
  if (flush && !in_place && ::fsync(descriptor_) != 0) return writing_failed(path_);
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (in_place) return closed == 0 ? Result<>() : writing_failed(path_);
  if (closed == 0 && std::rename(temporary_.c_str(), path_.c_str()) == 0) return {};
  auto error = writing_failed(path_);
  ::unlink(temporary_.c_str());
  return error;
}

}  // namespace rullama
