// Files of this machine as byte sources.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "formats/file.h"

namespace rullama {

// Maps a regular file read-only. `read` goes through the file descriptor, so a file that is cut while it is open gives
// an error there; only code that walks `mapped()` directly relies on the file staying as it is.
[[nodiscard]] Result<std::shared_ptr<const ByteSource>> open_mapped(const std::string& path);

// The whole text of a regular file, which has at most `most` bytes.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, std::uint64_t most = UINT64_MAX);

}  // namespace rullama
