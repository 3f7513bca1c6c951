// Runs one rule in child processes, so that a plugin that crashes or hangs fails only this rule.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "net_plugin/abi/types.h"
#include "transport/base/units.h"

namespace pacecar::check {

constexpr int kMaxRanks = 2;
constexpr size_t kMaxListeners = 4;  // of rank 0

// A sentence in shared memory. The first process that sets it wins.
class SharedLine {
 public:
  void set(std::string_view text) {
    if (text.empty() || taken_.exchange(true)) return;
    length_ = text.copy(text_.data(), text_.size());
  }
  std::string_view get() const { return {text_.data(), length_}; }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<size_t> length_{0};
  std::array<char, 600> text_{};
};

// The shared memory of one trial's processes: plain bytes and atomics only.
struct Arena {
  std::atomic<int> arrived{0};
  std::atomic<uint32_t> barrier_round{0};
  std::atomic<int> finished{0};  // ranks whose body has returned
  std::array<std::array<uint8_t, nccl::kHandleBytes>, kMaxListeners> handles{};
  SharedLine violation;
  SharedLine not_offered;
  SharedLine warning;  // the plugin's first warning
  SharedLine note;     // a figure that a rule found
};

// Why a rule does not apply to this plugin.
class NotOffered : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Verdict : uint8_t { kPass, kFail, kNotOffered };

struct Outcome {
  Verdict verdict = Verdict::kFail;
  std::string detail;  // the reason of a failure, or a rule's note
};

// `body` runs in each process, with the rank's number, and may throw anything.
Outcome run_trial(int ranks, Duration limit, const std::function<void(Arena&, int)>& body);

}  // namespace pacecar::check
