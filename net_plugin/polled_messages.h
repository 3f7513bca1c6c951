// Messages that a GPU polls before they are complete.
//
// Thread rule: reads the environment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace pacecar::plugin {

// The longest of them, in bytes. The kernels of NCCL's protocols LL and LL128 poll the lines of a
// message, which fills one of 8 steps of the protocol's buffer: at most 120 words of 8 bytes for
// each of 640 threads, unless the user has set another buffer size (NCCL 2.13 to 2.30; RCCL has
// less).
inline uint64_t longest_polled_message() {
  constexpr uint64_t kSteps = 8;
  uint64_t longest = 120 * 640 * 8;
  for (const char* name : {"NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE"}) {
    const char* chosen = std::getenv(name);
    const long long bytes = chosen == nullptr ? 0 : std::strtoll(chosen, nullptr, 0);
    if (bytes > 0) longest = std::max(longest, static_cast<uint64_t>(bytes) / kSteps);
  }
  return longest;
}

}  // namespace pacecar::plugin
