// net_memif of DPDK 22.11 ends the process in three cases, which this file prevents:
//
// - A peer ends during a burst. The driver unmaps the rings on the EAL's interrupt thread, even if
//   a burst uses them. So bursts of such a device run only while that thread waits in a callback of
//   ours. Every 100 ms (1 ms while another guarded device connects) it gets a turn of 0.1 ms, for
//   which bursts wait. While no guarded device has a link it is not held, and no burst runs.
//
//    kInterruptThread: bursts wait ──0.1 ms, a link──▶ kBursts: it is held, bursts run
//       │                  ▲                             │        ▲
//    no link               └──100 ms or InterruptTurn────┘        │ a link
//       └──────────────────────▶ kNobody ─────────────────────────┘
//
// - A client leaves before the server greets it. The server closes the connection, but the
//   interrupt thread still waits for it and panics. So our clients wait until they are greeted.
//   Anyone who may connect to a server can crash it so; therefore the socket's file is accessible
//   to its user alone, and abstract names, to which everybody on the host may connect, cause a
//   warning.
// - A server's device is closed. Its listener stays open, the interrupt thread still waits for it,
//   and it refers to freed memory. So retire_memif_listener() replaces it.
//
// The driver hides its control sockets: they are found by the name in its argument "socket". Thread
// rule: any thread but the interrupt thread, unless a function has another.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

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

// Removes the file of a socket without a listener: a killed server leaves it, and its successor
// could not listen there.
void remove_dead_memif_socket(const std::string& path);

// Makes the file of a listening server accessible to its user alone.
void restrict_memif_socket(const std::string& path);

// Whether a client of this process has a connection to the server, greeted or not.
bool memif_client_is_connected(std::string_view socket);

// Call it on the interrupt thread, after the last device with this socket has been closed. Rejects
// waiting clients. Leaks one descriptor.
void retire_memif_listener(std::string_view socket);

}  // namespace pacecar
