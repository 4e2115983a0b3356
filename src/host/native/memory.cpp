#include "host/native/memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace rullama {
namespace {

// The number after `key` in a file of lines "key number", as /proc and control groups have them.
std::optional<std::uint64_t> number_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  for (std::string word; file >> word;)
    if (word == key && file >> number) return number;
  return {};
}

}  // namespace

std::uint64_t available_memory() {
  std::uint64_t room = UINT64_MAX;
  if (const auto kib = number_in("/proc/meminfo", "MemAvailable:"))
    room = (*kib + number_in("/proc/meminfo", "SwapFree:").value_or(0)) * 1024;
  // a container's own limit; what it keeps of files is given back when memory is short
  std::uint64_t most = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> most)
    if (const auto used = number_in("/sys/fs/cgroup/memory.stat", "anon"))
      room = std::min(room, most - std::min(most, *used));
  return room;
}

}  // namespace rullama
