// net_memif of DPDK 22.11 ends the process if its peer ends during a burst: the driver unmaps the
// rings on the EAL's interrupt thread, even if a burst uses them. So bursts of such a device (a
// guarded one) run only while that thread waits in a callback of ours. Every 100 ms (1 ms while
// another guarded device connects) it gets a turn of 0.1 ms, for which bursts wait. While no
// guarded device has a link it is not held, and no burst runs.
//
//    kInterruptThread: bursts wait ──0.1 ms, a link──▶ kBursts: it is held, bursts run
//       │                  ▲                             │        ▲
//    no link               └──100 ms or InterruptTurn────┘        │ a link
//       └──────────────────────▶ kNobody ─────────────────────────┘
//
// Thread rule: any thread but the interrupt thread.
#pragma once

#include <cstdint>
#include <mutex>

namespace pacecar {

// As long as one lives, the interrupt thread is not held. One at a time.
class InterruptTurn {
 public:
  InterruptTurn();
  InterruptTurn(const InterruptTurn&) = delete;
  InterruptTurn& operator=(const InterruptTurn&) = delete;
  ~InterruptTurn();

 private:
  std::lock_guard<std::mutex> lock_;
};

// The interrupt thread is held only while guarded devices exist.
void add_guarded_device(uint16_t port_id);
void remove_guarded_device(uint16_t port_id);

// Lives during one burst call of a guarded device, which may run only if the device has a link.
class GuardedBurst {
 public:
  explicit GuardedBurst(uint16_t port_id);
  GuardedBurst(const GuardedBurst&) = delete;
  GuardedBurst& operator=(const GuardedBurst&) = delete;
  ~GuardedBurst();
  bool may_run() const { return may_run_; }

 private:
  bool may_run_;
};

bool has_link(uint16_t port_id);

}  // namespace pacecar
