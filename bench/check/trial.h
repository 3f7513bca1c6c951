// Runs one rule in processes of its own, so that a plugin that crashes or hangs fails a rule and
// nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "net_plugin/abi/types.h"
#include "transport/base/units.h"

namespace pacecar::check {

// The shared memory of one trial's processes: handles, a barrier, and the first failure. Plain
// bytes and atomics only.

constexpr int kMaxRanks = 2;
constexpr size_t kMaxListeners = 4;  // of rank 0

// A sentence that one of several processes sets; the first one stays.
class SharedLine {
 public:
  void set(std::string_view text);
  std::string_view get() const;

 private:
  std::atomic<bool> taken_{false};
  std::atomic<size_t> length_{0};
  std::array<char, 600> text_{};
};

struct Arena {
  std::atomic<int> arrived{0};
  std::atomic<uint32_t> barrier_round{0};
  std::atomic<int> finished{0};  // ranks that came to their end
  std::array<std::array<uint8_t, nccl::kHandleBytes>, kMaxListeners> handles{};
  SharedLine violation;
  SharedLine not_offered;
  SharedLine warning;  // the plugin's first warning
  SharedLine note;     // a figure that a rule found
};

enum class Verdict : uint8_t { kPass, kFail, kNotOffered };

struct Outcome {
  Verdict verdict = Verdict::kFail;
  std::string detail;  // why not; or what was found
};

// `body` runs in each process, with the rank's number, and may throw anything.
Outcome run_trial(int ranks, Duration limit, const std::function<void(Arena&, int)>& body);

}  // namespace pacecar::check
