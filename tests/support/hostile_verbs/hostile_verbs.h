// Hostile RDMA devices: libibverbs' functions for devices that exist only in this process and
// others of the same world. They do everything that a real device may do and rdma_rxe does not. A
// program that is linked with this library, or preloads it, finds them instead of real
// devices.
//
// Environment of programs that preload it: HOSTILE_VERBS, see parse_behavior();
// HOSTILE_VERBS_WORLD, the same name for processes that reach each other.
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

// The behavior of devices that are opened from now on.
void configure(const Behavior& behavior);
// A tick of every device that is open.
void turn();
// The devices' time, which turn() advances.
int64_t now_ns();

void set_link(uint32_t device, bool up);
void kill_device(uint32_t device, const Death& how = {});
// Kills the device at its `death.at_call`-th call from now on.
void plan_death(const Death& death);
// Calls to the device since the last plan.
uint64_t calls(uint32_t device);
// Raises an event, and puts its subject (of queue pairs any one with shared receives) into the
// state that the event means.
void raise(uint32_t device, ibv_event_type type);
// Objects that were not destroyed when a device was closed, and open devices; empty: none.
std::string left_over();

// The memory of this process that is registered with a device.
std::vector<std::span<const uint8_t>> registered_memory();

}  // namespace pacecar::hostile
