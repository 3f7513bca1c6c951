// [topology]: kind and the keys of that kind, or file = "x.topo".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/sim/topologies.h"

namespace pacecar {
namespace {

uint32_t count(SpecReader& reader, std::string_view key, uint32_t otherwise, uint32_t min = 1) {
  return reader.whole<uint32_t>(key, otherwise, min, 1U << 20);
}

CableSpec cable(SpecReader& reader, std::string_view rate, std::string_view delay,
                const CableSpec& otherwise) {
  return {reader.rate(rate, otherwise.rate), reader.duration(delay, otherwise.delay)};
}

CableSpec host_cable(SpecReader& reader) { return cable(reader, "rate", "delay", CableSpec()); }

// The smallest divisor that is not below the square root: 16 of 128.
uint32_t square_side(uint32_t number) {
  uint32_t side = 1;
  while (uint64_t{side} * side < number || number % side != 0) ++side;
  return side;
}

// The number of uplinks (bundles) that carries all traffic from below.
uint32_t cables_above(uint32_t below, Rate rate, Rate above, uint32_t bundle) {
  if (above.bps() == 0) return 1;  // refused by the builder
  const auto wanted = static_cast<unsigned __int128>(below) * rate.bps();
  const auto each = static_cast<unsigned __int128>(above.bps()) * bundle;
  return static_cast<uint32_t>((wanted + each - 1) / each);
}

Result<Topology> star(SpecReader& reader) {
  const StarSpec spec{.hosts = count(reader, "hosts", 16), .cable = host_cable(reader)};
  RETURN_IF_ERROR(reader.finish());
  return make_star(spec);
}

Result<Topology> dumbbell(SpecReader& reader) {
  DumbbellSpec spec{.left = count(reader, "left", 8), .right = count(reader, "right", 8)};
  spec.cable = host_cable(reader);
  spec.bottleneck = cable(reader, "bottleneck_rate", "bottleneck_delay", spec.cable);
  RETURN_IF_ERROR(reader.finish());
  return make_dumbbell(spec);
}

Result<Topology> leaf_spine(SpecReader& reader, uint32_t ports) {
  LeafSpineSpec spec;
  spec.hosts = count(reader, "hosts", 128);
  spec.hosts_per_leaf = count(reader, "hosts_per_leaf", square_side(spec.hosts));
  spec.ports_per_host = ports;
  spec.bundle = count(reader, "bundle", 1);
  spec.cable = host_cable(reader);
  spec.uplink = cable(reader, "uplink_rate", "uplink_delay", spec.cable);
  spec.spines =
      count(reader, "spines",
            cables_above(spec.hosts_per_leaf, spec.cable.rate, spec.uplink.rate, spec.bundle));
  RETURN_IF_ERROR(reader.finish());
  return make_leaf_spine(spec);
}

Result<Topology> fat_tree(SpecReader& reader) {
  FatTreeSpec spec;
  if (reader.has("radix")) {
    const uint32_t radix = count(reader, "radix", 8, 2);
    const uint32_t hosts = count(reader, "hosts", 0, 0);
    const uint32_t oversubscription = count(reader, "oversubscription", 1);
    if (!reader.failed()) {
      ASSIGN_OR_RETURN(spec, fat_tree_of_radix(radix, hosts, oversubscription));
    }
  } else {
    spec.pods = count(reader, "pods", spec.pods);
    spec.leaves_per_pod = count(reader, "leaves_per_pod", spec.leaves_per_pod);
    spec.hosts_per_leaf = count(reader, "hosts_per_leaf", spec.hosts_per_leaf);
    spec.aggregations_per_pod = count(reader, "aggregations_per_pod", spec.aggregations_per_pod);
    spec.cores_per_aggregation = count(reader, "cores_per_aggregation", spec.cores_per_aggregation);
    spec.leaf_bundle = count(reader, "leaf_bundle", spec.leaf_bundle);
    spec.core_bundle = count(reader, "core_bundle", spec.core_bundle);
  }
  spec.cable = host_cable(reader);
  spec.leaf_uplink = cable(reader, "uplink_rate", "uplink_delay", spec.cable);
  spec.core_uplink = cable(reader, "core_rate", "core_delay", spec.leaf_uplink);
  RETURN_IF_ERROR(reader.finish());
  return make_fat_tree(spec);
}

Result<Topology> rail(SpecReader& reader) {
  RailSpec spec;
  spec.servers = count(reader, "servers", 16);
  spec.gpus_per_server = count(reader, "gpus_per_server", 8);
  spec.servers_per_leaf = count(reader, "servers_per_leaf", 0, 0);
  spec.cable = host_cable(reader);
  spec.uplink = cable(reader, "uplink_rate", "uplink_delay", spec.cable);
  const uint32_t below = spec.servers_per_leaf == 0 ? spec.servers : spec.servers_per_leaf;
  spec.spines = count(reader, "spines", cables_above(below, spec.cable.rate, spec.uplink.rate, 1));
  RETURN_IF_ERROR(reader.finish());
  return make_rails(spec);
}

// Hosts whose cables are slower than the others': a list, or how many, spread evenly.
std::vector<uint32_t> slow_hosts(SpecReader& reader, uint32_t hosts) {
  const SpecValue* value = reader.value("slow_hosts");
  if (value != nullptr && value->list() != nullptr) return reader.wholes("slow_hosts", hosts - 1);
  const uint64_t number = reader.whole("slow_hosts", 0, 0, hosts);
  std::vector<uint32_t> slow;
  for (uint32_t host = 0; host < hosts; ++host) {
    if ((host + 1) * number / hosts > host * number / hosts) slow.push_back(host);
  }
  return slow;
}

void slow_down(SpecReader& reader, Topology& topology) {
  const auto slow = slow_hosts(reader, topology.hosts);
  const Rate rate = reader.rate("slow_rate", Rate());
  if (slow.empty() != (rate == Rate())) {
    reader.complain("slow_hosts", "goes with slow_rate, such as slow_rate = \"100G\"");
  }
  const auto is_slow = [&](NodeId node) { return std::ranges::find(slow, node) != slow.end(); };
  for (Cable& cable : topology.cables) {
    if (is_slow(cable.a) || is_slow(cable.b)) cable.rate = rate;
  }
}

constexpr std::array kKinds{
    TopologyKind{"leaf-spine",
                 "hosts, hosts_per_leaf, spines, bundle; every leaf joined with every spine",
                 [](SpecReader& reader) { return leaf_spine(reader, 1); }},
    TopologyKind{"fat-tree",
                 "radix (with hosts, oversubscription), or pods, leaves_per_pod, ...; three tiers",
                 fat_tree},
    TopologyKind{"rail",
                 "servers, gpus_per_server, servers_per_leaf, spines; GPU i of a server is on leaf "
                 "i of its group (rails)",
                 rail},
    TopologyKind{"dual-port", "as leaf-spine, but every host has a cable to each of two leaves",
                 [](SpecReader& reader) { return leaf_spine(reader, 2); }},
    TopologyKind{
        "dumbbell",
        "left, right, bottleneck_rate, bottleneck_delay; two switches and the cable between",
        dumbbell},
    TopologyKind{"star", "hosts; all on one switch", star}};

}  // namespace

std::span<const TopologyKind> topology_kinds() { return kKinds; }

Result<Topology> read_topology(const SpecValue& value, const std::string& base_dir) {
  SpecReader reader(value, "[topology]");
  const uint32_t processes = count(reader, "processes", 1);
  // Marks the keys as known; slow_down() reads them when the topology exists.
  reader.has("slow_hosts");
  reader.has("slow_rate");
  Result<Topology> topology;
  if (reader.has("file")) {
    const std::string file = reader.text("file", "");
    RETURN_IF_ERROR(reader.finish());
    topology = read_topo_file(path_in(base_dir, file));
  } else {
    topology = kKinds[reader.choice("kind", 0, names_of(topology_kinds()))].make(reader);
    RETURN_IF_ERROR(reader.finish());
  }
  if (!topology) {  // the mistake is in this table, or in the file it names
    return fail(topology.error().code,
                fmt::format("{}: [topology]: {}", value.place.text(), topology.error().message));
  }
  topology->processes = processes;
  slow_down(reader, *topology);
  RETURN_IF_ERROR(reader.finish());
  return topology;
}

}  // namespace pacecar
