#include "tests/support/hostile_verbs/world.h"

#include <unistd.h>

#include <algorithm>
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

template <typename Use>
void for_each_open(Use use) {
  World& world = World::instance();
  const std::lock_guard lock(world.mutex);
  for (Device* const device : world.open) use(*device);
}

// A process may have a device open several times.
template <typename Use>
void with_device(uint32_t number, Use use) {
  for_each_open([&](Device& device) {
    if (device.number() == number) use(device);
  });
}

}  // namespace

World& World::instance() {
  static World* const world = new World;  // outlives all that close their devices at exit
  return *world;
}

World::World() : behavior(parse_behavior(variable("HOSTILE_VERBS"))) {
  name = variable("HOSTILE_VERBS_WORLD");
  if (name.empty()) name = std::to_string(getpid());
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    verbs[i].node_type = IBV_NODE_CA;
    verbs[i].transport_type = IBV_TRANSPORT_IB;
    std::snprintf(verbs[i].name, sizeof verbs[i].name, "hostile%u", i);
    std::snprintf(verbs[i].dev_name, sizeof verbs[i].dev_name, "uverbs%u", i);
  }
}

std::span<ibv_device> World::devices() {
  const std::lock_guard lock(mutex);
  return std::span(verbs).first(std::min(behavior.devices, kMaxDevices));
}

std::optional<Death> World::on_call(uint32_t device) {
  const uint64_t call = ++calls[device];
  const bool planned = death.at_call != 0 && device == death.device;
  if (!planned || call < death.at_call) return std::nullopt;
  return death;
}

void configure(const Behavior& behavior) {
  World& world = World::instance();
  const std::lock_guard lock(world.mutex);
  world.behavior = behavior;
}

void turn() {
  World::instance().now_ns += kTickNs;
  for_each_open([](Device& device) { device.tick(); });
}

int64_t now_ns() { return World::instance().now_ns; }

void set_link(uint32_t number, bool up) {
  with_device(number, [&](Device& device) { device.set_link(up); });
}

void kill_device(uint32_t number, const Death& how) {
  with_device(number, [&](Device& device) { device.die(how); });
}

void raise(uint32_t number, ibv_event_type type) {
  with_device(number, [&](Device& device) { device.raise(type); });
}

void plan_death(const Death& death) {
  World& world = World::instance();
  world.death = death;
  for (auto& count : world.calls) count = 0;
}

uint64_t calls(uint32_t device) { return World::instance().calls[device]; }

std::string left_over() {
  World& world = World::instance();
  const std::lock_guard lock(world.mutex);
  const size_t open = world.open.size();
  return std::exchange(world.left_over, {}) +
         (open == 0 ? "" : std::to_string(open) + " open devices");
}

std::vector<std::span<const uint8_t>> registered_memory() {
  std::vector<std::span<const uint8_t>> all;
  for_each_open([&](Device& device) {
    const std::lock_guard lock(device.lock());
    device.regions().list(all);
  });
  return all;
}

}  // namespace pacecar::hostile
