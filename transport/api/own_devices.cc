#include "transport/api/own_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "transport/api/state_document.h"

namespace pacecar {
namespace {

// At this size the set is cleared, so lines may be logged again.
constexpr size_t kMaxReported = 4096;

// "roce", or "roce+soft" of bonded NICs of different kinds.
std::string networks_of(const OwnDevice& device) {
  std::vector<std::string> names;
  for (const OwnNic& nic : device.nics) {
    for (const std::string& name : nic.engine->caps().networks) {
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

NamedDevice named(const OwnDevice& device) {
  NamedDevice named;
  for (const OwnNic& nic : device.nics) {
    named.numbers.push_back(nic.engine->identity().back());
    NicNetworks& networks = named.networks.emplace_back();
    std::ranges::transform(nic.engine->caps().networks, std::back_inserter(networks), network_id);
  }
  return named;
}

}  // namespace

void Replacements::log_use(const OwnDevice& requested, const OwnDevice& used,
                           const std::string& peer) {
  if (requested.number == used.number) return;
  const std::string line = fmt::format(
      "connections with {} use {} ({}) in place of {} ({}): the peer's NIC is of that network",
      peer.substr(0, peer.rfind(':')), used.name, networks_of(used), requested.name,
      networks_of(requested));
  {
    const std::lock_guard lock(mutex_);
    if (reported_.size() == kMaxReported) reported_.clear();
    if (!reported_.insert(line).second) return;
  }
  used.nics.front().log(LogLevel::kInfo, line);
}

UsableDevices usable_devices(const OwnDevices& own) {
  UsableDevices usable;
  for (size_t i = 0; i < own.devices.size(); ++i) {
    if (!own.devices[i].suits) continue;
    usable.named.push_back(named(own.devices[i]));
    usable.places.push_back(i);
  }
  return usable;
}

std::string describe_process(const OwnDevices& own) {
  const ProcessName process = own_process();
  std::string text = fmt::format("{} (pid {}) has", process.host, process.pid);
  for (size_t i = 0; i < own.devices.size(); ++i) {
    const OwnDevice& device = own.devices[i];
    text += fmt::format("{} {} ({}{})", i == 0 ? "" : " and", device.name, networks_of(device),
                        device.suits ? "" : ", but not for the same GPU memory: see PACECAR_GPU");
  }
  return text;
}

std::string no_common_network(const std::string& connecting, const std::string& listening) {
  return fmt::format(
      "the two processes share no kind of network: {}, {}; add a NIC of the other's network to "
      "PACECAR_NICS, or give software NICs the same PACECAR_WIRE on both sides",
      connecting, listening);
}

}  // namespace pacecar
