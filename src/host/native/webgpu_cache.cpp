// One file a pipeline, named by the hash of its key; it holds the key too, for keys may share a hash.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/hash.h"
#include "host/native/file_writer.h"
#include "host/native/webgpu_native.h"

namespace rullama::host {
namespace {

struct Closer {
  void operator()(std::FILE* f) const { std::fclose(f); }
};

struct Header {  // then come the key and the value
  std::uint64_t key_size = 0, value_size = 0, checksum = 0;
};

std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = kFnvBasis;
  for (const char c : bytes) h = fnv1a(h, static_cast<unsigned char>(c));
  return h;
}

std::string file_of(const std::string& folder, std::string_view key) {
  char name[24];
  std::snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(hash(key)));
  return folder + name;
}

bool make_folders(const std::string& path) {
  for (std::size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    if (::mkdir(path.substr(0, at).c_str(), 0777) != 0 && errno != EEXIST) return false;
  }
  return true;
}

bool read(std::FILE* file, std::string& out, std::uint64_t size) {
  out.resize(size);
  return std::fread(out.data(), 1, size, file) == size;
}

std::string load_value(const std::string& folder, std::string_view wanted) {
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(file_of(folder, wanted).c_str(), "rb"));
  struct stat status{};
  Header header;
  if (!file || ::fstat(::fileno(file.get()), &status) != 0) return {};
  if (std::fread(&header, sizeof header, 1, file.get()) != 1 || header.key_size != wanted.size()) return {};
  // the sizes are checked against the file's before they are believed
  const auto rest = static_cast<std::uint64_t>(status.st_size) - sizeof header;
  if (rest < header.key_size || rest - header.key_size != header.value_size) return {};
  std::string key, value;
  if (!read(file.get(), key, header.key_size) || key != wanted) return {};
  if (!read(file.get(), value, header.value_size) || hash(value) != header.checksum) return {};
  return value;
}

}  // namespace

PipelineCache::PipelineCache() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::string base = variable("RULLAMA_CACHE");
  if (const std::string all = variable("XDG_CACHE_HOME"); base.empty() && !all.empty()) base = all + "/rullama";
  if (const std::string home = variable("HOME"); base.empty() && !home.empty()) base = home + "/.cache/rullama";
  if (!base.empty() && make_folders(base + "/pipelines")) folder_ = base + "/pipelines";
}

std::size_t PipelineCache::load(std::string_view key, void* value, std::size_t room) {
  const std::lock_guard lock(mutex_);
  if (key_ != key || !value) {
    value_ = load_value(folder_, key);
    key_ = key;
  }
  if (value && room >= value_.size()) std::memcpy(value, value_.data(), value_.size());
  return value_.size();
}

void PipelineCache::store(std::string_view key, std::string_view value) const {
  auto file = FileWriter::create(file_of(folder_, key));
  if (!file) return;
  const Header header{key.size(), value.size(), hash(value)};
  const auto bytes = [](std::string_view s) { return std::as_bytes(std::span(s)); };
  if (!file->write(std::as_bytes(std::span(&header, 1))) || !file->write(bytes(key)) || !file->write(bytes(value)))
    return;
  // not flushed, which takes longer than compiling: the checksum finds what a crash of the machine leaves
  (void)file->commit(false).has_value();
}

}  // namespace rullama::host
