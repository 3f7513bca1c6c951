#include "transport/api/own_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "transport/api/state_document.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/engine/clock.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr Duration kPause = Duration::from_s(60);  // between equal lines
// At this size the set is cleared, so lines may be logged again.
constexpr size_t kMaxReported = 4096;

// "roce", or "roce+soft" of bonded NICs of different kinds.
std::string networks_of(const OwnDevice& device) {
  std::vector<std::string> names;
  for (const OwnNic& nic : device.nics) {
    for (const std::string& name : nic.engine->caps().networks) {
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    }
    if (nic.subnet.prefix > 0) {
      names.push_back(
          fmt::format("{}/{}", ip_to_string(address_of(nic.subnet)), nic.subnet.prefix));
    }
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

// Of "host:port".
std::string host_of(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

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

void Notices::log_use(const OwnDevice& requested, const OwnDevice& used, const std::string& peer) {
  if (requested.number == used.number && requested.nics.size() == used.nics.size()) return;
  const std::string line = fmt::format(
      "connections with {} use {} ({}) in place of {} ({}): the peer's NIC is of that network",
      host_of(peer), used.name, networks_of(used), requested.name, networks_of(requested));
  if (!is_first(line, clock_now())) return;
  used.nics.front().log(LogLevel::kInfo, line);
}

void Notices::log_lonely(const OwnDevice& device, const std::string& address, Instant now) {
  if (!is_first("lonely", now)) return;
  const OwnNic& nic = device.nics.front();
  nic.log(
      LogLevel::kWarn,
      fmt::format("no peer has connected at {} (TCP) of {} for {:g} s: if the peer's log says that "
                  "it cannot connect, a firewall drops this port (PACECAR_PORTS sets the "
                  "range), or the peer has no route to it; else it has not come so far",
                  address, device.name, bootstrap::kPatience.seconds()));
}

void Notices::log_unreached(const OwnDevice& device, const std::string& peer,
                            const std::string& line, Instant now) {
  if (is_first("unreached " + host_of(peer), now)) {
    device.nics.front().log(LogLevel::kWarn, line);
  }
}

void Notices::log_route(const OwnNic& nic, const std::string& peer, Instant now) {
  if (!is_first(fmt::format("route of {} to {}", nic.name, host_of(peer)), now)) return;
  const std::string trouble = route_trouble(nic.name, nic.engine->address(), peer);
  if (!trouble.empty() && is_first("route of " + nic.name, now)) {
    nic.log(LogLevel::kWarn, trouble);
  }
}

bool Notices::is_first(const std::string& line, Instant now) {
  const std::lock_guard lock(mutex_);
  if (reported_.size() == kMaxReported) reported_.clear();
  const auto [last, added] = reported_.try_emplace(line, now);
  if (!added && now < last->second + kPause) return false;
  last->second = now;
  return true;
}

OwnDevice with_nics(const OwnDevice& device, std::span<const size_t> members) {
  OwnDevice part{.number = device.number, .name = {}, .suits = device.suits, .nics = {}};
  for (const size_t member : members) {
    part.nics.push_back(device.nics[member]);
    part.name += (part.name.empty() ? "" : "+") + part.nics.back().name;
  }
  return part;
}

bool same_kind(const OwnNic& one, const OwnNic& other) {
  return one.engine->caps().networks == other.engine->caps().networks;
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
      "PACECAR_NICS, or give software NICs the same PACECAR_WIRE and addresses of one IP version "
      "(soft: IPv4, soft6: IPv6) on both sides",
      connecting, listening);
}

std::vector<NamedAddress> addresses_of(const OwnDevices& own) {
  std::vector<NamedAddress> addresses;
  for (const OwnDevice& device : own.devices) {
    for (const OwnNic& nic : device.nics) {
      const NamedAddress address{.nic = nic.engine->identity().back(), .subnet = nic.subnet};
      if (nic.subnet.prefix > 0 && device.suits && same_kind(nic, own.requested().nics.front()) &&
          std::ranges::count(addresses, address) == 0) {
        addresses.push_back(address);
      }
    }
  }
  return addresses;
}

std::string no_common_subnet(const OwnDevices& own, const Address& listener) {
  return fmt::format(
      "no packets reach the peer's {0}: {1}, none in a subnet of the peer's NICs, and this host's "
      "route to {0} does not leave by {2}: let PACECAR_NICS name NICs on a network of all hosts, "
      "or let the hosts between forward packets ('sysctl net.ipv4.ip_forward=1') and give both "
      "ends a route ('ip route add {0} via NEIGHBOR')",
      ip_to_string(listener), describe_process(own), own.requested().name);
}

}  // namespace pacecar
