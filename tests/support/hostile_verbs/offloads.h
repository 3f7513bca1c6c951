// Optional offloads of a hostile device: time stamps of completions, rate limits. Each is as strict
// as its manual page.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "tests/support/hostile_verbs/behavior.h"
#include "transport/base/prng.h"

namespace pacecar::hostile {

// Fills in the calls that a program makes through its context.
void offer_offloads(verbs_context& context);

// The time stamp of a completion now, in ticks of the device's clock.
uint64_t time_stamp(const Behavior& behavior, int64_t now_ns, Prng& prng);

// The rate limit of a queue pair. A new limit applies from the next message on.
class SendLimit {
 public:
  // 0: no limit.
  void set(uint32_t kbps) { next_kbps_ = kbps; }
  uint32_t kbps() const { return next_kbps_; }
  void begin_message() { kbps_ = next_kbps_; }
  bool allows(int64_t now_ns) const { return kbps_ == 0 || free_ns_ <= now_ns; }
  // `burst` bytes may exceed the limit at once.
  void on_sent(uint64_t bytes, uint32_t burst, int64_t now_ns);

 private:
  uint32_t kbps_ = 0;
  uint32_t next_kbps_ = 0;
  int64_t free_ns_ = 0;
};

}  // namespace pacecar::hostile
