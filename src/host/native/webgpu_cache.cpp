// Compiled pipelines on disk: a file a key, named by the key's hash, holding the key itself and the value. A damaged or
// foreign file counts as missing, and nothing here can fail loudly: the worst that happens is that a pipeline is compiled.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/text.h"
#include "host/native/file_writer.h"
#include "host/native/webgpu_native.h"

namespace rullama::host {
namespace {

struct Closer {
  void operator()(std::FILE* f) const { std::fclose(f); }
};

std::uint64_t hash(const void* data, std::size_t size) {  // FNV-1a
  std::uint64_t h = 1469598103934665603ull;
  for (std::size_t i = 0; i < size; i++) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
  return h;
}

std::string file_of(const std::string& folder, std::size_t key_size, const void* key) {
  char name[24];
  std::snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(hash(key, key_size)));
  return folder + name;
}

// Header: sizes and a checksum of the value, then key and value.
struct Header {
  std::uint64_t key_size = 0, value_size = 0, checksum = 0;
};

bool make_folders(const std::string& path) {
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    if (::mkdir(path.substr(0, at).c_str(), 0777) != 0 && errno != EEXIST) return false;
  }
  return true;
}

}  // namespace

std::string pipeline_cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::string base = variable("RULLAMA_CACHE");
  if (base.empty() && !variable("XDG_CACHE_HOME").empty()) base = variable("XDG_CACHE_HOME") + "/rullama";
  if (base.empty() && !variable("HOME").empty()) base = variable("HOME") + "/.cache/rullama";
  if (base.empty()) return {};
  base += "/pipelines";
  return make_folders(base) ? base : std::string();
}

std::size_t load_cached(const std::string& folder, std::size_t key_size, const void* key, std::size_t value_size, void* value) {
  std::unique_ptr<std::FILE, Closer> file(std::fopen(file_of(folder, key_size, key).c_str(), "rb"));
  Header header;
  if (!file || std::fread(&header, sizeof header, 1, file.get()) != 1 || header.key_size != key_size) return 0;
  std::vector<unsigned char> found_key(key_size);
  if (std::fread(found_key.data(), 1, key_size, file.get()) != key_size || std::memcmp(found_key.data(), key, key_size) != 0) return 0;
  struct stat status {};
  if (::fstat(::fileno(file.get()), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != sizeof header + header.key_size + header.value_size)
    return 0;
  std::vector<unsigned char> found(header.value_size);
  if (std::fread(found.data(), 1, found.size(), file.get()) != found.size() || hash(found.data(), found.size()) != header.checksum) return 0;
  if (value && value_size >= found.size()) std::memcpy(value, found.data(), found.size());
  return found.size();
}

void store_cached(const std::string& folder, std::size_t key_size, const void* key, std::size_t value_size, const void* value) {
  auto file = FileWriter::create(file_of(folder, key_size, key));
  if (!file) return;
  const Header header{key_size, value_size, hash(value, value_size)};
  const auto bytes = [](const void* p, std::size_t n) { return std::span(static_cast<const std::byte*>(p), n); };
  if (file->write(bytes(&header, sizeof header)) && file->write(bytes(key, key_size)) && file->write(bytes(value, value_size)))
    (void)file->commit().has_value();
}

}  // namespace rullama::host
