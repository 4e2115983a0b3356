// Work shared out over threads. The core only sees this interface: natively a crew has threads
// (host/native/crew.h), in the browser it is the serial one.
#pragma once

#include <cstddef>
#include <functional>

namespace rullama {

class Crew {
 public:
  virtual ~Crew() = default;
  [[nodiscard]] virtual std::size_t width() const { return 1; }  // threads, at least 1

  // Calls work(begin, end) over pieces that cover [0, count) once, each of at least `grain` items (but the last),
  // and returns when all are done. `work` runs on several threads at a time; it must not call a crew.
  virtual void run(std::size_t count, std::size_t grain, const std::function<void(std::size_t, std::size_t)>& work) {
    (void)grain;
    if (count) work(0, count);
  }
};

}  // namespace rullama
