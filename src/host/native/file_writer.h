// Files that appear whole or not at all: written under a temporary name beside the target, then renamed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "formats/file.h"

namespace rullama {

// A target that is a device or a pipe is written to as it is; any other is replaced when all is written.
class FileWriter final : public ByteSink {
 public:
  [[nodiscard]] static Result<FileWriter> create(const std::string& path);
  ~FileWriter() override;  // without commit: the temporary file goes, the target stays as it was
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;

  [[nodiscard]] Result<> write(std::span<const std::byte> data) override;
  // Puts the file in its place. `flush`: only when it is on the disk, so that a crash of the machine leaves it whole.
  [[nodiscard]] Result<> commit(bool flush = true);

 private:
  FileWriter(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}
  void discard();
  std::string path_, temporary_;
  int descriptor_ = -1;
};

// A whole file, which `write` fills; on an error the target stays as it was.
template <class Write>
[[nodiscard]] Result<> write_file(const std::string& path, Write&& write) {
  auto file = FileWriter::create(path);
  if (!file) return failed(file);
  if (Result<> ok = write(*file); !ok) return ok;
  return file->commit();
}
[[nodiscard]] inline Result<> write_text_file(const std::string& path, std::string_view text) {
  return write_file(path, [&](ByteSink& sink) { return sink.write(std::as_bytes(std::span(text))); });
}

}  // namespace rullama
