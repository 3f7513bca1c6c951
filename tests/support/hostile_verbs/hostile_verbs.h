// Hostile RDMA devices: libibverbs' functions for devices that exist in this process and others of
// the same world only, and that do everything that a real one may do and rdma_rxe does not. A
// program that is linked with them, or preloads them, finds them instead of the machine's.
//
// Environment, for programs that preload them: HOSTILE_VERBS, see parse_behavior();
// HOSTILE_VERBS_WORLD, the same for those that shall reach each other.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/hostile_verbs/behavior.h"
#include "tests/support/hostile_verbs/death.h"
#include "tests/support/hostile_verbs/memory.h"

namespace pacecar::hostile {

// Of devices opened from now on.
void configure(const Behavior& behavior);
// A tick of every device that is open.
void turn();
// The devices' time, which turn() moves on.
int64_t now_ns();

void set_link(uint32_t device, bool up);
void kill_device(uint32_t device, const Death& how = {});
// Kills the device when so many calls were made of it, from now on.
void plan_death(const Death& death);
// Since the last plan.
uint64_t calls(uint32_t device);
// The device tells of it; what the event is about (of queue pairs any with shared receives) is in
// the state that goes with it.
void raise(uint32_t device, ibv_event_type type);
// What was not given back when a device was closed, and devices that are open; empty: nothing.
std::string left_over();

// What the devices were asked for, and did, of what not every device has.
struct OffloadUse {
  uint64_t built_requests = 0;        // posted by ibv_wr_*
  std::vector<uint32_t> rate_limits;  // kbps, of each queue pair that has one
};
OffloadUse offload_use();

// Memory of this process that is registered with a device now, by its address.
std::vector<std::span<const uint8_t>> registered_memory();

}  // namespace pacecar::hostile
