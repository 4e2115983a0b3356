#include "host/native/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/text.h"

namespace rullama {
namespace {

class MappedFile final : public ByteSource {
 public:
  MappedFile(std::string path, int descriptor, std::uint64_t size, void* address)
      : path_(std::move(path)), descriptor_(descriptor), size_(size), address_(address) {}
  ~MappedFile() override {
    if (address_) ::munmap(address_, size_);
    ::close(descriptor_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return path_; }
  std::span<const std::byte> mapped() const override {
    return {static_cast<const std::byte*>(address_), address_ ? size_ : 0};
  }

  Result<> read(std::uint64_t offset, std::span<std::byte> dst) const override {
    if (offset > size_ || dst.size() > size_ - offset)
      return fail(ErrorCode::io, cat(quote(path_), " ends before byte ", offset + dst.size()));
    while (!dst.empty()) {
      const ssize_t n =
          ::pread(descriptor_, dst.data(), std::min<std::size_t>(dst.size(), 1u << 30), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(ErrorCode::io, cat("reading ", quote(path_), " failed: ", std::strerror(errno)));
      if (n == 0) return fail(ErrorCode::io, cat(quote(path_), " became shorter while it was being read"));
      dst = dst.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return {};
  }

  void release(std::uint64_t offset, std::uint64_t length) const override {
    if (!address_ || offset >= size_) return;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = (offset + page - 1) / page * page,
                        end = (offset + std::min(length, size_ - offset)) / page * page;
    if (begin < end) ::madvise(static_cast<std::byte*>(address_) + begin, end - begin, MADV_DONTNEED);
  }

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_;
  void* address_;
};

}  // namespace

Result<std::shared_ptr<const ByteSource>> open_mapped(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block here
  if (descriptor < 0)
    return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                cat("cannot open ", quote(path, 200), ": ", std::strerror(errno)));
  struct stat status{};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    const bool folder = known && S_ISDIR(status.st_mode);
    return fail(ErrorCode::io,
                cat(quote(path, 200), folder ? " is a folder, expected a file" : " is not a regular file"));
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  void* address = nullptr;
  if (size > 0) {
    address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) {
      const int why = errno;
      ::close(descriptor);
      return fail(ErrorCode::io, cat("cannot map ", quote(path, 200), ": ", std::strerror(why)));
    }
  }
  return std::make_shared<const MappedFile>(path, descriptor, size, address);
}

Result<std::string> read_text_file(const std::string& path, std::uint64_t most) {
  const bool standard = path == "-";
  const std::string name = standard ? "the standard input" : quote(path, 200);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(standard ? nullptr : std::fopen(path.c_str(), "rb"),
                                                               std::fclose);
  std::FILE* const file = standard ? stdin : opened.get();
  if (!file)
    return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                cat("cannot open ", name, ": ", std::strerror(errno)));
  std::string text;
  char block[1 << 16];
  for (std::size_t got; text.size() <= most && (got = std::fread(block, 1, sizeof block, file)) > 0;)
    text.append(block, got);
  if (text.size() > most) return fail(cat(name, " has more than ", bytes_text(static_cast<double>(most))));
  if (std::ferror(file)) return fail(ErrorCode::io, cat("cannot read ", name, ": ", std::strerror(errno)));
  return text;
}

}  // namespace rullama
