// Keeps the EAL's interrupt thread from changing a device during its bursts. When a peer of
// net_memif ends, the driver unmaps the rings on that thread, even if a burst uses them (DPDK
// 22.11): the process would die. So bursts of such a device run only while the interrupt thread
// waits in a callback of ours. Every 10 ms it gets a turn of 0.1 ms, for which bursts wait.
//
//    turn: bursts wait ──alarm, 0.1 ms──▶ held: bursts run
//            ▲                              │
//            └───10 ms, or InterruptTurn────┘
//
// Thread rule: any thread but the interrupt thread.
#pragma once

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
void add_guarded_device();
void remove_guarded_device();

// Lives during one burst call of a guarded device.
class GuardedBurst {
 public:
  GuardedBurst();
  GuardedBurst(const GuardedBurst&) = delete;
  GuardedBurst& operator=(const GuardedBurst&) = delete;
  ~GuardedBurst();
};

}  // namespace pacecar
