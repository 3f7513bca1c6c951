// The devices of this process, and what they have in common. The entry points of libibverbs find
// their device here.
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

class World {
 public:
  static constexpr uint32_t kMostDevices = 8;

  static World& instance();

  const Behavior& behavior() const { return behavior_; }
  const std::string& name() const { return name_; }
  int64_t now_ns() const { return now_ns_; }
  // The verbs objects of the devices that there are now; they live as long as the process.
  std::span<ibv_device> devices();

  void configure(const Behavior& behavior);
  void turn();
  void add(Device& device);
  void remove(Device& device);
  void set_link(uint32_t device, bool up);
  void kill_device(uint32_t device, const Death& how);
  void plan_death(const Death& death);
  uint64_t calls(uint32_t device) const { return calls_[device]; }
  // Counts a call of the device; how it dies, if this one kills it.
  std::optional<Death> on_call(uint32_t device);
  void raise(uint32_t device, ibv_event_type type);
  void leave_over(const std::string& what);
  std::string left_over();
  std::vector<std::span<const uint8_t>> registered_memory();
  OffloadUse offload_use();

 private:
  World();

  std::recursive_mutex mutex_;
  Behavior behavior_;
  std::string name_;
  std::atomic<int64_t> now_ns_{1'000'000'000};
  std::array<ibv_device, kMostDevices> devices_{};
  std::vector<Device*> open_;
  Death death_;
  std::array<std::atomic<uint64_t>, kMostDevices> calls_{};
  std::string left_over_;
};

// Fills in what a program calls through its context.
void set_up_operations(verbs_context& context, Device& device, ibv_device* verbs);

}  // namespace pacecar::hostile
