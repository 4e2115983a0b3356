#include "host/native/crew.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace rullama {
namespace {

constexpr int kSpins = 4000;  // some 20 us

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

class Threads final : public Crew {
 public:
  explicit Threads(std::size_t width) : width_(width) {
    for (std::size_t i = 1; i < width; i++) threads_.emplace_back([this] { serve(); });
  }
  ~Threads() override {
    stop_.store(true);
    round_.fetch_add(1);
    round_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  std::size_t width() const override { return width_; }

  void run(std::size_t count, std::size_t grain, const std::function<void(std::size_t, std::size_t)>& work) override {
    if (count == 0) return;
    grain = std::max<std::size_t>(grain, 1);
    if (width_ == 1 || count <= grain) return work(0, count);
    work_ = &work;
    count_ = count;
    // a few pieces per thread, so that a thread that was interrupted does not hold up the others
    piece_ = std::max(grain, (count + width_ * 4 - 1) / (width_ * 4));
    next_.store(0);
    busy_.store(threads_.size());
    round_.fetch_add(1);
    round_.notify_all();
    take_pieces();
    for (int spin = 0; busy_.load() != 0; spin++) {
      if (spin < kSpins) {
        relax();
      } else if (const std::size_t left = busy_.load(); left != 0) {
        busy_.wait(left);
      }
    }
  }

 private:
  void take_pieces() {
    for (;;) {
      const std::size_t begin = next_.fetch_add(piece_);
      if (begin >= count_) return;
      (*work_)(begin, std::min(begin + piece_, count_));
    }
  }
  void serve() {
    std::uint32_t seen = 0;
    for (;;) {
      for (int spin = 0; round_.load() == seen; spin++) {
        if (spin < kSpins) {
          relax();
        } else {
          round_.wait(seen);
        }
      }
      seen = round_.load();
      if (stop_.load()) return;
      take_pieces();
      if (busy_.fetch_sub(1) == 1) busy_.notify_one();
    }
  }

  std::size_t width_;
  std::vector<std::thread> threads_;
  std::atomic<std::uint32_t> round_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> next_{0}, busy_{0};
  std::size_t count_ = 0, piece_ = 1;
  const std::function<void(std::size_t, std::size_t)>* work_ = nullptr;
};

std::size_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<std::size_t>(CPU_COUNT(&set));
  return std::thread::hardware_concurrency();
}

}  // namespace

std::shared_ptr<Crew> make_crew(std::size_t threads) {
  if (threads == 0) threads = usable_cores();
  return std::make_shared<Threads>(std::max<std::size_t>(threads, 1));
}

}  // namespace rullama
