// The shared memory of one trial's processes: handles, a barrier, and the first failure. Plain
// bytes and atomics only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "net_plugin/abi/types.h"

namespace pacecar::check {

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
  SharedLine note;  // a figure that a rule found
};

}  // namespace pacecar::check
