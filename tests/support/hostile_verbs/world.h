// The devices of this process, and the state that they share. The entry points of libibverbs find
// their device here.
//
// Thread rule: any thread. `mutex` guards `behavior`, `open` and `left_over`; plan_death() is
// called while nobody else calls a device.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/hostile_verbs/behavior.h"
#include "tests/support/hostile_verbs/death.h"
#include "tests/support/hostile_verbs/hostile_verbs.h"

namespace pacecar::hostile {

class Device;

struct World {
  static constexpr uint32_t kMaxDevices = 8;

  static World& instance();
  World();

  // The verbs objects of the devices that are there now; they live as long as the process.
  std::span<ibv_device> devices();
  // Counts a call to the device. Returns how the device dies, if this call kills it.
  std::optional<Death> on_call(uint32_t device);

  std::recursive_mutex mutex;
  Behavior behavior;
  std::string name;  // processes with the same name reach each other
  std::atomic<int64_t> now_ns{1'000'000'000};
  std::array<ibv_device, kMaxDevices> verbs{};
  std::vector<Device*> open;
  Death death;
  std::array<std::atomic<uint64_t>, kMaxDevices> calls{};
  std::string left_over;
};

// Fills in the calls that a program makes through its context.
void set_up_operations(verbs_context& context, Device& device, ibv_device* verbs);

}  // namespace pacecar::hostile
