// The right to write into a folder, which one holder at a time has. It leaves nothing behind and ends with the process,
// however that ends.
#pragma once

#include <optional>
#include <string>

namespace rullama {

class FolderLock {
 public:
  // Nothing if someone else holds it. Where a folder cannot be locked (some file systems), everyone gets it.
  [[nodiscard]] static std::optional<FolderLock> take(const std::string& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace rullama
