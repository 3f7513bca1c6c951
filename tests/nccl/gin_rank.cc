// One rank of a job that puts into the windows of others by NCCL's GIN, and checks every byte:
//   gin_rank NCCL RANK RANKS GPU ID_FILE SEED STEPS [killed]
// Peers, sizes, places, contexts and signals are drawn, the same in all ranks. Prints a line of
// JSON: how many puts were checked, and how many had wrong bytes.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/nccl/gpu/device.h"
#include "tests/nccl/buffer.h"
#include "tests/nccl/gin.h"

namespace pacecar::nccl_test {
namespace {

using nccl::driver;
using nccl::end_with;
using nccl::require_driver;
using nccl::require_nccl;

constexpr size_t kArea = size_t{1} << 20;  // of a window: the sources of puts, then their targets
constexpr size_t kWords = 2 * kArea;       // then words that additions change
constexpr size_t kWindow = 3 * kArea;
constexpr uint32_t kSignals = 3;
constexpr int kCounters = 2;
constexpr unsigned char kUntouched = 0xff;

enum class End { kIncrement, kAdd, kAddToWindow };

struct Put {
  size_t offset;  // in both areas
  size_t bytes;
  bool value;  // in the descriptor
};

struct Step {
  int shift;  // to the rank so far away
  int context;
  size_t window;
  std::vector<Put> puts;
  End end;
  uint32_t signal;
  uint64_t added;
  int counter;
};

class Draw {
 public:
  Draw(uint64_t seed, int ranks, int contexts)
      : engine_(seed), ranks_(ranks), contexts_(contexts) {}

  Step step() {
    Step made{.shift = below(ranks_),
              .context = below(contexts_),
              .window = static_cast<size_t>(below(2)),
              .puts = {},
              .end = static_cast<End>(below(3)),
              .signal = static_cast<uint32_t>(below(static_cast<int>(kSignals))),
              .added = (uint64_t{engine_()} << 16 ^ engine_()) + 1,
              .counter = below(kCounters + 1) - 1};
    // Now and then more than a queue holds.
    const int count = below(8) == 0 ? 600 : 1 + below(6);
    size_t offset = 0;
    for (int i = 0; i < count; ++i) {
      Put put{.offset = offset + static_cast<size_t>(below(3)),
              .bytes = size(count > 6),
              .value = below(4) == 0};
      if (put.value) put.bytes = size_t{1} << below(4);
      offset = put.offset + put.bytes;
      made.puts.push_back(put);
    }
    return made;
  }

 private:
  int below(int limit) { return static_cast<int>(engine_() % static_cast<uint32_t>(limit)); }
  size_t size(bool many) {
    constexpr std::array<size_t, 8> kSizes{0, 1, 7, 64, 1000, 4096, 65537, 100'000};
    return kSizes[static_cast<size_t>(below(many ? 5 : 8))];
  }

  std::mt19937 engine_;
  int ranks_;
  int contexts_;
};

// What `rank` puts in a step.
std::vector<unsigned char> pattern(uint64_t step, int rank) {
  std::mt19937 engine(static_cast<uint32_t>(step * 1000 + static_cast<uint64_t>(rank)));
  std::vector<unsigned char> bytes(kArea);
  for (unsigned char& one : bytes) one = static_cast<unsigned char>(engine() % kUntouched);
  return bytes;
}

class Rank {
 public:
  explicit Rank(char** arguments)
      : job_(std::stoi(arguments[2]), std::stoi(arguments[3]), std::stoi(arguments[4]),
             arguments[5]) {
    windows_[0].emplace(job_.handle(), BufferKind::kSymmetricWindow, kWindow);
    gin_.emplace(job_.handle(), kSignals, kCounters);
    windows_[1].emplace(job_.handle(), BufferKind::kWindow, kWindow);  // while GIN is there
    for (size_t i = 0; i < windows_.size(); ++i) {
      if (windows_[i]->window() == nullptr) end_with("NCCL has no windows here");
      views_[i] = Gin::window(windows_[i]->window());
      const std::vector<uint64_t> zeros(kSignals + 1);
      to_gpu(windows_[i]->data() + kWords, zeros.data(), zeros.size() * sizeof(uint64_t));
    }
  }

  // The number of wrong puts.
  size_t run(uint64_t number, const Step& step) {
    Buffer& window = *windows_[step.window];
    const std::vector<unsigned char> sent = pattern(number, job_.rank());
    const std::vector<unsigned char> untouched(kArea, kUntouched);
    to_gpu(window.data(), sent.data(), kArea);
    to_gpu(window.data() + kArea, untouched.data(), kArea);
    job_.barrier(scratch_);
    const uint64_t counted = step.counter >= 0 ? gin_->counter(step.context, step.counter) : 0;
    send(step, sent);
    await_end(step);
    gin_->flush(step.context);
    if (step.counter >= 0 && gin_->counter(step.context, step.counter) != counted + 1) {
      end_with("a counter is " + std::to_string(gin_->counter(step.context, step.counter)));
    }
    return wrong(step, pattern(number, from(step)));
  }

  // NCCL's error.
  int see_the_last_die() {
    job_.barrier(scratch_);
    // The last rank waits for all: its data on the way to other ranks would end with it.
    const int last = job_.ranks() - 1;
    const Step ready{.window = 0, .end = End::kAddToWindow, .signal = kSignals, .added = 1};
    if (job_.rank() == last) {
      while (word(ready) + 1 < static_cast<uint64_t>(job_.ranks())) sched_yield();
      raise(SIGKILL);
    }
    gin_->add(0, last, views_[0], kWords + kSignals * sizeof(uint64_t), 1);
    const GinPut put{last, nullptr, 0, views_.data(), kArea, sizeof(uint64_t)};
    int seen = 0;
    while ((seen = failure()) == 0) {
      gin_->put_value(0, put, 1, nullptr);
      // NCCL sees refused puts only: the queue must not be full of such as were on their way.
      usleep(50'000);
    }
    require_nccl(more().abort(job_.handle()), "ncclCommAbort");
    return seen;
  }

  void leave() {
    job_.barrier(scratch_);
    gin_.reset();
    for (auto& window : windows_) window->release();
  }

  int ranks() const { return job_.ranks(); }
  int contexts() const { return gin_->contexts(); }

 private:
  int from(const Step& step) const {
    return (job_.rank() + job_.ranks() - step.shift) % job_.ranks();
  }

  int failure() const {
    int seen = 0;
    require_nccl(nccl::nccl().async_error(job_.handle(), &seen), "ncclCommGetAsyncError");
    return seen;
  }

  static void to_gpu(char* to, const void* from, size_t bytes) {
    require_driver(driver().copy_to_device(reinterpret_cast<nccl::DevicePointer>(to), from, bytes),
                   "cuMemcpy to the GPU");
  }

  void send(const Step& step, const std::vector<unsigned char>& sent) {
    const GinWindow& window = views_[step.window];
    const int peer = (job_.rank() + step.shift) % job_.ranks();
    const GinSignal signal{step.signal, step.end == End::kAdd ? step.added : 0};
    for (size_t i = 0; i < step.puts.size(); ++i) {
      const Put& one = step.puts[i];
      const bool last = i + 1 == step.puts.size();
      const GinSignal* const with = last && step.end != End::kAddToWindow ? &signal : nullptr;
      const GinPut put{peer, &window, one.offset, &window, kArea + one.offset, one.bytes};
      if (one.value && !(last && step.counter >= 0)) {
        uint64_t value = 0;
        std::memcpy(&value, sent.data() + one.offset, one.bytes);
        gin_->put_value(step.context, put, value, with);
      } else {
        gin_->put(step.context, put, with, last ? step.counter : -1);
      }
    }
    if (step.end == End::kAddToWindow) {
      gin_->add(step.context, peer, window, kWords + step.signal * sizeof(uint64_t), step.added);
    }
  }

  // The signal or addition that ends the puts to this rank arrives after all puts.
  void await_end(const Step& step) {
    const bool in_window = step.end == End::kAddToWindow;
    const std::vector<uint64_t>::size_type place =
        (in_window ? kMostContexts + step.window : static_cast<size_t>(step.context)) * kSignals +
        step.signal;
    totals_[place] += step.end == End::kIncrement ? 1 : step.added;
    for (;;) {
      const uint64_t seen = in_window ? word(step) : gin_->signal(step.context, step.signal);
      if (seen == totals_[place]) return;
      require_nccl(failure(), "the network under GIN");
      sched_yield();
    }
  }

  uint64_t word(const Step& step) const {
    uint64_t value = 0;
    const char* const at = windows_[step.window]->data() + kWords + step.signal * sizeof(value);
    require_driver(
        driver().copy_to_host(&value, reinterpret_cast<nccl::DevicePointer>(at), sizeof(value)),
        "cuMemcpy from the GPU");
    return value;
  }

  size_t wrong(const Step& step, const std::vector<unsigned char>& sent) {
    std::vector<unsigned char> got(kArea);
    const char* const area = windows_[step.window]->data() + kArea;
    require_driver(
        driver().copy_to_host(got.data(), reinterpret_cast<nccl::DevicePointer>(area), kArea),
        "cuMemcpy from the GPU");
    size_t count = 0;
    size_t end = 0;
    for (const Put& put : step.puts) {
      const bool good = std::equal(sent.data() + put.offset, sent.data() + put.offset + put.bytes,
                                   got.data() + put.offset) &&
                        std::all_of(got.data() + end, got.data() + put.offset,
                                    [](unsigned char one) { return one == kUntouched; });
      if (!good) {
        std::fprintf(stderr, "rank %d, context %d: %zu bytes at %zu from rank %d are wrong\n",
                     job_.rank(), step.context, put.bytes, put.offset, from(step));
      }
      count += good ? 0 : 1;
      end = put.offset + put.bytes;
    }
    return count;
  }

  static constexpr size_t kMostContexts = 64;

  nccl::Communicator job_;
  nccl::DeviceBuffer scratch_{1};
  std::array<std::optional<Buffer>, 2> windows_;
  std::array<GinWindow, 2> views_{};
  std::optional<Gin> gin_;
  std::vector<uint64_t> totals_ = std::vector<uint64_t>((kMostContexts + 2) * kSignals);
};

int run(char** arguments, bool killed) {
  load_all(arguments[1]);
  Rank rank(arguments);
  Draw draw(std::stoul(arguments[6]), rank.ranks(), rank.contexts());
  const size_t steps = std::stoul(arguments[7]);
  size_t checked = 0;
  size_t wrong = 0;
  for (size_t step = 0; step < steps; ++step) {
    const Step made = draw.step();
    wrong += rank.run(step, made);
    checked += made.puts.size();
  }
  if (killed) {
    std::printf("{\"error\": %d}\n", rank.see_the_last_die());
    std::fflush(stdout);
    std::_Exit(0);  // of the communicator nothing is left
  }
  rank.leave();
  std::printf("{\"checked\": %zu, \"wrong\": %zu}\n", checked, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pacecar::nccl_test

int main(int argc, char** argv) {
  constexpr int kArguments = 8;
  if (argc < kArguments) {
    std::fprintf(stderr, "usage: gin_rank NCCL RANK RANKS GPU ID_FILE SEED STEPS [killed]\n");
    return 2;
  }
  return pacecar::nccl_test::run(argv, argc > kArguments);
}
