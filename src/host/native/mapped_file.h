// Files of this machine as byte sources and as texts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "formats/file.h"

namespace rullama {

// Maps a regular file read-only. `read` goes through the file descriptor, so a file that is cut while it is open gives
// an error there; only code that walks `mapped()` directly relies on the file staying as it is.
[[nodiscard]] Result<std::shared_ptr<const ByteSource>> open_mapped(const std::string& path);

// All of a file or a pipe, which must not be longer than `most` bytes; "-" is the standard input.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, std::uint64_t most = 4'000'000'000);

}  // namespace rullama
