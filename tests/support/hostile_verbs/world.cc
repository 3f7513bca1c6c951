#include "tests/support/hostile_verbs/world.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/support/hostile_verbs/device.h"
#include "tests/support/hostile_verbs/hostile_verbs.h"

namespace pacecar::hostile {
namespace {

constexpr int64_t kTickNs = 1000;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace

World& World::instance() {
  static World* const world = new World;  // outlives those who close their devices at the end
  return *world;
}

World::World() : behavior_(parse_behavior(variable("HOSTILE_VERBS"))) {
  name_ = variable("HOSTILE_VERBS_WORLD");
  if (name_.empty()) name_ = std::to_string(getpid());
  for (uint32_t i = 0; i < kMostDevices; ++i) {
    devices_[i].node_type = IBV_NODE_CA;
    devices_[i].transport_type = IBV_TRANSPORT_IB;
    std::snprintf(devices_[i].name, sizeof devices_[i].name, "hostile%u", i);
    std::snprintf(devices_[i].dev_name, sizeof devices_[i].dev_name, "uverbs%u", i);
  }
}

void World::configure(const Behavior& behavior) {
  const std::lock_guard lock(mutex_);
  behavior_ = behavior;
}

std::span<ibv_device> World::devices() {
  const std::lock_guard lock(mutex_);
  return std::span(devices_).first(std::min(behavior_.devices, kMostDevices));
}

void World::turn() {
  const std::lock_guard lock(mutex_);
  now_ns_ += kTickNs;
  for (Device* device : open_) device->tick();
}

void World::add(Device& device) {
  const std::lock_guard lock(mutex_);
  open_.push_back(&device);
}

void World::remove(Device& device) {
  const std::lock_guard lock(mutex_);
  std::erase(open_, &device);
}

void World::set_link(uint32_t device, bool up) {
  const std::lock_guard lock(mutex_);
  for (Device* each : open_) {
    if (each->number() == device) each->set_link(up);
  }
}

void World::kill_device(uint32_t device, const Death& how) {
  const std::lock_guard lock(mutex_);
  for (Device* each : open_) {
    if (each->number() == device) each->die(how);
  }
}

void World::plan_death(const Death& death) {
  death_ = death;
  for (auto& count : calls_) count = 0;
}

std::optional<Death> World::on_call(uint32_t device) {
  const uint64_t call = ++calls_[device];
  const bool planned = death_.at_call != 0 && device == death_.device;
  if (!planned || call < death_.at_call) return std::nullopt;
  return death_;
}

void World::raise(uint32_t device, ibv_event_type type) {
  const std::lock_guard lock(mutex_);
  for (Device* each : open_) {
    if (each->number() == device) each->raise(type);
  }
}

void World::leave_over(const std::string& what) {
  const std::lock_guard lock(mutex_);
  left_over_ += what;
}

std::string World::left_over() {
  const std::lock_guard lock(mutex_);
  const std::string open = open_.empty() ? "" : std::to_string(open_.size()) + " open devices";
  return std::exchange(left_over_, {}) + open;
}

std::vector<std::span<const uint8_t>> World::registered_memory() {
  const std::lock_guard lock(mutex_);
  std::vector<std::span<const uint8_t>> all;
  for (Device* device : open_) {
    const std::lock_guard device_lock(device->lock());
    device->regions().list(all);
  }
  return all;
}

OffloadUse World::offload_use() {
  const std::lock_guard lock(mutex_);
  OffloadUse use;
  for (Device* device : open_) {
    const std::lock_guard device_lock(device->lock());
    use.built_requests += device->built_requests;
    device->list_limits(use.rate_limits);
  }
  return use;
}

void configure(const Behavior& behavior) { World::instance().configure(behavior); }
void turn() { World::instance().turn(); }
int64_t now_ns() { return World::instance().now_ns(); }
void set_link(uint32_t device, bool up) { World::instance().set_link(device, up); }
void kill_device(uint32_t device, const Death& how) {
  World::instance().kill_device(device, how);
}
void plan_death(const Death& death) { World::instance().plan_death(death); }
uint64_t calls(uint32_t device) { return World::instance().calls(device); }
void raise(uint32_t device, ibv_event_type type) { World::instance().raise(device, type); }
std::string left_over() { return World::instance().left_over(); }
OffloadUse offload_use() { return World::instance().offload_use(); }
std::vector<std::span<const uint8_t>> registered_memory() {
  return World::instance().registered_memory();
}

}  // namespace pacecar::hostile
