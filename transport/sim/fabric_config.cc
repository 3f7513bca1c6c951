#include "transport/sim/fabric_config.h"

#include <string_view>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr uint32_t kMaxProcesses = 1U << 24;   // limit of addresses
constexpr uint32_t kMaxProcessesOfHost = 256;  // limit of the field in packets
constexpr uint16_t kMaxPaths = 60'000;         // limit of UDP ports
constexpr Bytes kMaxDatagram = 65'507;         // of UDP over IPv4
constexpr uint64_t kMaxBps = 1'000'000'000'000'000;
constexpr Bytes kMaxBytes = Bytes{1} << 50;  // far beyond any buffer; sums do not overflow

Result<void> check_topology(const Topology& topology) {
  if (topology.processes == 0 || topology.processes > kMaxProcessesOfHost) {
    return invalid("the topology has {} processes per host: choose 1 to {}", topology.processes,
                   kMaxProcessesOfHost);
  }
  if (topology.hosts > kMaxProcesses / topology.processes) {
    return invalid(
        "the topology has {} hosts with {} processes each: this simulator numbers at most {}",
        topology.hosts, topology.processes, kMaxProcesses);
  }
  for (size_t i = 0; i < topology.cables.size(); ++i) {
    const Cable& cable = topology.cables[i];
    if (cable.rate.bps() > 0 && cable.rate.bps() <= kMaxBps && cable.delay >= Duration()) continue;
    return invalid(
        "cable {} of topology {} has a rate of {} b/s and a delay of {} ns: choose 1 to {} b/s and "
        "0 ns or more",
        i, topology.name, cable.rate.bps(), cable.delay.ns(), kMaxBps);
  }
  return {};
}

Result<void> check_sizes(const FabricConfig& config) {
  struct Size {
    std::string_view setting;
    Bytes value;
    Bytes least;
    Bytes most;
  };
  const HostPortConfig& hosts = config.hosts;
  const SwitchConfig& switches = config.switches;
  const Bytes largest = hosts.largest_packet();
  std::vector<Size> sizes = {
      {"packets", config.packets, 1, kMaxBytes},
      {"hosts.datagram_bytes", hosts.datagram_bytes, 1, kMaxDatagram},
      {"hosts.overhead_bytes", hosts.overhead_bytes, 0, kMaxDatagram},
      {"hosts.control_queue_bytes", hosts.control_queue_bytes, largest, kMaxBytes},
      {"hosts.inbox_bytes", hosts.inbox_bytes, hosts.datagram_bytes, kMaxBytes},
      {"hosts.paths", hosts.paths, 1, kMaxPaths},
  };
  if (config.payload == PayloadMode::kLength) {
    sizes.push_back({"header_bytes", config.header_bytes, 1, kMaxDatagram});
  }
  if (switches.queue_bytes > 0) {
    sizes.push_back({"switches.queue_bytes", switches.queue_bytes, largest, kMaxBytes});
  }
  if (switches.buffer_bytes > 0) {
    sizes.push_back({"switches.buffer_bytes", switches.buffer_bytes, largest, kMaxBytes});
  }
  if (switches.trimming) {
    sizes.push_back({"switches.trimmed_bytes", switches.trimmed_bytes, 1, largest});
  }
  for (const auto& [setting, value, least, most] : sizes) {
    if (value >= least && value <= most) continue;
    return invalid("{} is {}: choose {} to {}; the largest packet has {} bytes", setting, value,
                   least, most, largest);
  }
  return {};
}

Result<void> check_policers(const FabricConfig& config, const Topology& topology) {
  const Bytes largest = config.hosts.largest_packet();
  std::vector<bool> policed(2 * topology.cables.size());
  for (const PolicerConfig& policer : config.policers) {
    if (policer.link >= policed.size() || policed[policer.link]) {
      return invalid(
          "there is no link {} for a policer, or it has one: name each of the links 0 to {} at "
          "most once",
          policer.link, policed.size() - 1);
    }
    policed[policer.link] = true;
    if (policer.rate.bps() == 0 || policer.rate.bps() > kMaxBps || policer.burst < largest ||
        policer.burst > kMaxBytes) {
      return invalid(
          "the policer of link {} has a rate of {} b/s and a burst of {} bytes: choose 1 to {} "
          "b/s, and a burst that holds the largest packet, {} bytes",
          policer.link, policer.rate.bps(), policer.burst, kMaxBps, largest);
    }
  }
  return {};
}

Result<void> check_switches(const SwitchConfig& switches) {
  const EcnConfig& ecn = switches.ecn;
  if (switches.queue_bytes == 0 && switches.buffer_bytes == 0 && !switches.pfc.enabled) {
    return invalid(
        "a switch without bounds could hold everything: set switches.queue_bytes (per port) or "
        "switches.buffer_bytes (shared)");
  }
  if (!(ecn.max_probability >= 0 && ecn.max_probability <= 1)) {
    return invalid("switches.ecn.max_probability is {}: choose 0 to 1", ecn.max_probability);
  }
  if (ecn.kind == EcnConfig::Kind::kRed && ecn.high < ecn.low) {
    return invalid("switches.ecn.high ({}) is below switches.ecn.low ({}): exchange them", ecn.high,
                   ecn.low);
  }
  if (!switches.pfc.enabled) return {};
  if (switches.buffer_bytes == 0) {
    return invalid(
        "switches.pfc needs a shared buffer to divide: set switches.buffer_bytes, for example "
        "4194304");
  }
  if (switches.queue_bytes > 0 || switches.trimming) {
    return invalid(
        "switches.pfc loses nothing, and switches.queue_bytes and switches.trimming would: set "
        "them to 0 and false");
  }
  if (!(switches.pfc.alpha > 0 && switches.pfc.alpha <= 1024)) {
    return invalid("switches.pfc.alpha is {}: choose more than 0 and at most 1024",
                   switches.pfc.alpha);
  }
  return {};
}

}  // namespace

Result<void> check_fabric_config(const FabricConfig& config, const Topology& topology) {
  if (config.failover < Duration()) return invalid("failover is negative: choose 0 or more");
  RETURN_IF_ERROR(check_topology(topology));
  RETURN_IF_ERROR(check_sizes(config));
  RETURN_IF_ERROR(check_policers(config, topology));
  return check_switches(config.switches);
}

}  // namespace pacecar
