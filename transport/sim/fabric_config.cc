#include "transport/sim/fabric_config.h"

#include <string_view>
#include <vector>

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

template <typename Number>
Result<void> between(std::string_view setting, Number value, Number least, Number most) {
  if (value >= least && value <= most) return {};
  return invalid("{} is {}: choose {} to {}", setting, value, least, most);
}

Result<void> check_rates(const Topology& topology) {
  for (size_t i = 0; i < topology.cables.size(); ++i) {
    const Cable& cable = topology.cables[i];
    if (cable.rate.bps() == 0 || cable.rate.bps() > kMaxBps || cable.delay < Duration()) {
      return invalid(
          "cable {} of topology {} has a rate of {} b/s and a delay of {} ns: choose 1 to {} b/s "
          "and 0 ns or more",
          i, topology.name, cable.rate.bps(), cable.delay.ns(), kMaxBps);
    }
  }
  return {};
}

Result<void> check_hosts(const FabricConfig& config) {
  const HostPortConfig& hosts = config.hosts;
  RETURN_IF_ERROR(between<Bytes>("hosts.datagram_bytes", hosts.datagram_bytes, 1, kMaxDatagram));
  RETURN_IF_ERROR(between<Bytes>("hosts.overhead_bytes", hosts.overhead_bytes, 0, kMaxDatagram));
  if (hosts.control_queue_bytes < hosts.largest_packet()) {
    return invalid(
        "hosts.control_queue_bytes ({}) must hold the largest packet, {} bytes: raise it or lower "
        "hosts.datagram_bytes",
        hosts.control_queue_bytes, hosts.largest_packet());
  }
  if (hosts.inbox_bytes < hosts.datagram_bytes) {
    return invalid("hosts.inbox_bytes ({}) must hold the largest datagram, {} bytes",
                   hosts.inbox_bytes, hosts.datagram_bytes);
  }
  return between<uint16_t>("hosts.paths", hosts.paths, 1, kMaxPaths);
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

Result<void> check_ecn(const EcnConfig& ecn) {
  RETURN_IF_ERROR(between("switches.ecn.max_probability", ecn.max_probability, 0.0, 1.0));
  if (ecn.kind == EcnConfig::Kind::kRed && ecn.high < ecn.low) {
    return invalid("switches.ecn.high ({}) is below switches.ecn.low ({}): exchange them", ecn.high,
                   ecn.low);
  }
  return {};
}

Result<void> check_pfc(const SwitchConfig& switches) {
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

Result<void> check_switches(const FabricConfig& config) {
  const SwitchConfig& switches = config.switches;
  const Bytes largest = config.hosts.largest_packet();
  if (switches.queue_bytes == 0 && switches.buffer_bytes == 0) {
    return invalid(
        "a switch without bounds could hold everything: set switches.queue_bytes (per port) or "
        "switches.buffer_bytes (shared)");
  }
  for (const Bytes bytes : {switches.queue_bytes, switches.buffer_bytes}) {
    if (bytes > 0 && (bytes < largest || bytes > kMaxBytes)) {
      return invalid(
          "switches.queue_bytes ({}) and switches.buffer_bytes ({}) must each be 0 or hold the "
          "largest packet, {} bytes",
          switches.queue_bytes, switches.buffer_bytes, largest);
    }
  }
  if (switches.trimming && (switches.trimmed_bytes == 0 || switches.trimmed_bytes > largest)) {
    return invalid("switches.trimmed_bytes is {}: choose 1 to {}, the largest packet",
                   switches.trimmed_bytes, largest);
  }
  RETURN_IF_ERROR(check_ecn(switches.ecn));
  return check_pfc(switches);
}

}  // namespace

Result<void> check_fabric_config(const FabricConfig& config, const Topology& topology) {
  if (topology.processes == 0 || topology.processes > kMaxProcessesOfHost) {
    return invalid("the topology has {} processes per host: choose 1 to {}", topology.processes,
                   kMaxProcessesOfHost);
  }
  if (topology.hosts > kMaxProcesses / topology.processes) {
    return invalid(
        "the topology has {} hosts with {} processes each: this simulator numbers at most {}",
        topology.hosts, topology.processes, kMaxProcesses);
  }
  RETURN_IF_ERROR(check_rates(topology));
  if (config.payload == PayloadMode::kLength) {
    RETURN_IF_ERROR(between<Bytes>("header_bytes", config.header_bytes, 1, kMaxDatagram));
  }
  if (config.packets == 0) return invalid("packets is 0: choose at least 1");
  if (config.failover < Duration()) return invalid("failover is negative: choose 0 or more");
  RETURN_IF_ERROR(check_hosts(config));
  RETURN_IF_ERROR(check_policers(config, topology));
  return check_switches(config);
}

}  // namespace pacecar
