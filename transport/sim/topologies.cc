#include "transport/sim/topologies.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Far more than a run can simulate; keeps every count within 32 bits.
constexpr uint64_t kMaxNodes = 1 << 20;
constexpr uint64_t kMaxCables = 1 << 23;

template <typename... Args>
tl::unexpected<Error> impossible(std::string_view shape, fmt::format_string<Args...> reason,
                                 Args&&... args) {
  return invalid("a {} cannot be built: {}", shape,
                 fmt::format(reason, std::forward<Args>(args)...));
}

// The product, limited to a number that is too large for a network.
uint64_t product(std::initializer_list<uint64_t> factors) {
  uint64_t result = 1;
  for (const uint64_t factor : factors) {
    const auto exact = static_cast<unsigned __int128>(result) * factor;
    result = exact > UINT32_MAX ? UINT32_MAX : static_cast<uint64_t>(exact);
  }
  return result;
}

// Checks the fields of one spec: numbers that must not be 0, and cables.
Result<void> check_fields(std::string_view shape,
                          std::initializer_list<std::pair<std::string_view, uint32_t>> numbers,
                          std::initializer_list<std::pair<std::string_view, CableSpec>> cables) {
  for (const auto& [field, value] : numbers) {
    if (value == 0) return impossible(shape, "{} is 0; give at least 1", field);
  }
  for (const auto& [field, cable] : cables) {
    if (cable.rate == Rate()) return impossible(shape, "the rate of {} is 0; give one", field);
    if (cable.delay < Duration()) {
      return impossible(shape, "the delay of {} is negative; give 0 or more", field);
    }
  }
  return {};
}

Result<void> check_multiple(std::string_view shape, std::string_view field, uint32_t value,
                            std::string_view of, uint64_t unit) {
  if (value % unit == 0) return {};
  return impossible(shape, "{} is {}, which is no multiple of {} ({}); make it {}", field, value,
                    of, unit, (value / unit + 1) * unit);
}

Result<void> check_size(std::string_view shape, uint64_t nodes, uint64_t cables) {
  if (nodes <= kMaxNodes && cables <= kMaxCables) return {};
  return impossible(shape, "it would have more than {} nodes or {} cables; make it smaller",
                    kMaxNodes, kMaxCables);
}

// Adds named nodes and cables.
class Builder {
 public:
  Builder(std::string name, uint32_t hosts) {
    topology_.name = std::move(name);
    topology_.hosts = hosts;
    for (uint32_t i = 0; i < hosts; ++i) topology_.node_names.push_back(fmt::format("host {}", i));
  }

  // The first of `count` switches.
  NodeId switches(std::string_view tier, uint32_t count) {
    const NodeId first = topology_.nodes();
    for (uint32_t i = 0; i < count; ++i) {
      topology_.node_names.push_back(fmt::format("{} {}", tier, i));
    }
    topology_.switches += count;
    return first;
  }

  void join(NodeId a, NodeId b, const CableSpec& cable, uint32_t count = 1) {
    for (uint32_t i = 0; i < count; ++i) {
      topology_.cables.push_back({.a = a, .b = b, .rate = cable.rate, .delay = cable.delay});
    }
  }

  // Joins each of the first nodes with each of the second ones.
  void join_all(NodeId first, uint64_t firsts, NodeId second, uint32_t seconds,
                const CableSpec& cable, uint32_t count = 1) {
    for (uint32_t i = 0; i < firsts; ++i) {
      for (uint32_t j = 0; j < seconds; ++j) join(first + i, second + j, cable, count);
    }
  }

  Topology take() { return std::move(topology_); }

 private:
  Topology topology_;
};

// Leaves that are all joined with all spines. `first_leaf` of a host: that of its first port.
template <typename FirstLeaf>
Topology two_tiers(const char* name, const LeafSpineSpec& spec, uint64_t leaves,
                   FirstLeaf first_leaf) {
  Builder build(name, spec.hosts);
  const NodeId leaf = build.switches("leaf", static_cast<uint32_t>(leaves));
  const NodeId spine = build.switches("spine", spec.spines);
  for (NodeId host = 0; host < spec.hosts; ++host) {
    build.join_all(host, 1, leaf + first_leaf(host), spec.ports_per_host, spec.cable);
  }
  build.join_all(leaf, leaves, spine, spec.spines, spec.uplink, spec.bundle);
  return build.take();
}

}  // namespace

Result<Topology> make_star(const StarSpec& spec) {
  RETURN_IF_ERROR(check_fields("star", {{"hosts", spec.hosts}}, {{"cable", spec.cable}}));
  RETURN_IF_ERROR(check_size("star", uint64_t{spec.hosts} + 1, spec.hosts));

  Builder build("star", spec.hosts);
  const NodeId center = build.switches("switch", 1);
  for (NodeId host = 0; host < spec.hosts; ++host) build.join(host, center, spec.cable);
  return build.take();
}

Result<Topology> make_dumbbell(const DumbbellSpec& spec) {
  RETURN_IF_ERROR(check_fields("dumbbell", {{"left", spec.left}, {"right", spec.right}},
                               {{"cable", spec.cable}, {"bottleneck", spec.bottleneck}}));
  const uint64_t hosts = uint64_t{spec.left} + spec.right;
  RETURN_IF_ERROR(check_size("dumbbell", hosts + 2, hosts + 1));

  Builder build("dumbbell", static_cast<uint32_t>(hosts));
  const NodeId left = build.switches("switch", 2);
  for (NodeId host = 0; host < hosts; ++host) {
    build.join(host, host < spec.left ? left : left + 1, spec.cable);
  }
  build.join(left, left + 1, spec.bottleneck);
  return build.take();
}

Result<Topology> make_leaf_spine(const LeafSpineSpec& spec) {
  constexpr const char* kShape = "leaf-spine network";
  RETURN_IF_ERROR(check_fields(kShape,
                               {{"hosts", spec.hosts},
                                {"hosts_per_leaf", spec.hosts_per_leaf},
                                {"spines", spec.spines},
                                {"bundle", spec.bundle}},
                               {{"cable", spec.cable}, {"uplink", spec.uplink}}));
  if (spec.ports_per_host != 1 && spec.ports_per_host != 2) {
    return impossible(kShape, "ports_per_host is {}; give 1 or 2", spec.ports_per_host);
  }
  RETURN_IF_ERROR(
      check_multiple(kShape, "hosts", spec.hosts, "hosts_per_leaf", spec.hosts_per_leaf));
  const uint32_t ports = spec.ports_per_host;
  const uint64_t leaves = product({spec.hosts / spec.hosts_per_leaf, ports});
  RETURN_IF_ERROR(
      check_size(kShape, spec.hosts + leaves + spec.spines,
                 product({spec.hosts, ports}) + product({leaves, spec.spines, spec.bundle})));

  return two_tiers("leaf-spine", spec, leaves,
                   [&](uint32_t host) { return host / spec.hosts_per_leaf * ports; });
}

Result<Topology> make_fat_tree(const FatTreeSpec& spec) {
  RETURN_IF_ERROR(check_fields("fat tree",
                               {{"pods", spec.pods},
                                {"leaves_per_pod", spec.leaves_per_pod},
                                {"hosts_per_leaf", spec.hosts_per_leaf},
                                {"aggregations_per_pod", spec.aggregations_per_pod},
                                {"cores_per_aggregation", spec.cores_per_aggregation},
                                {"leaf_bundle", spec.leaf_bundle},
                                {"core_bundle", spec.core_bundle}},
                               {{"cable", spec.cable},
                                {"leaf_uplink", spec.leaf_uplink},
                                {"core_uplink", spec.core_uplink}}));
  const uint64_t leaves = product({spec.pods, spec.leaves_per_pod});
  const uint64_t hosts = product({leaves, spec.hosts_per_leaf});
  const uint64_t aggregations = product({spec.pods, spec.aggregations_per_pod});
  const uint64_t cores = product({spec.aggregations_per_pod, spec.cores_per_aggregation});
  RETURN_IF_ERROR(
      check_size("fat tree", hosts + leaves + aggregations + cores,
                 hosts + product({leaves, spec.aggregations_per_pod, spec.leaf_bundle}) +
                     product({aggregations, spec.cores_per_aggregation, spec.core_bundle})));

  Builder build("fat tree", static_cast<uint32_t>(hosts));
  const NodeId leaf = build.switches("leaf", static_cast<uint32_t>(leaves));
  const NodeId aggregation = build.switches("aggregation", static_cast<uint32_t>(aggregations));
  const NodeId core = build.switches("core", static_cast<uint32_t>(cores));
  for (NodeId host = 0; host < hosts; ++host) {
    build.join(host, leaf + host / spec.hosts_per_leaf, spec.cable);
  }
  for (uint32_t i = 0; i < leaves; ++i) {
    const NodeId first = aggregation + i / spec.leaves_per_pod * spec.aggregations_per_pod;
    build.join_all(leaf + i, 1, first, spec.aggregations_per_pod, spec.leaf_uplink,
                   spec.leaf_bundle);
  }
  for (uint32_t i = 0; i < aggregations; ++i) {
    const NodeId first = core + i % spec.aggregations_per_pod * spec.cores_per_aggregation;
    build.join_all(aggregation + i, 1, first, spec.cores_per_aggregation, spec.core_uplink,
                   spec.core_bundle);
  }
  return build.take();
}

Result<FatTreeSpec> fat_tree_of_radix(uint32_t radix, uint32_t hosts, uint32_t oversubscription) {
  RETURN_IF_ERROR(check_fields("fat tree", {{"oversubscription", oversubscription}}, {}));
  // Half of an aggregation switch's ports, and one `parts`-th of a leaf switch's ports, go up.
  const uint64_t parts = uint64_t{oversubscription} + 1;
  const uint64_t unit = parts % 2 == 0 ? parts : 2 * parts;
  if (radix == 0 || radix % unit != 0) {
    return impossible("fat tree", "the radix is {}; with oversubscription {} give a multiple of {}",
                      radix, oversubscription, unit);
  }

  FatTreeSpec spec;
  spec.aggregations_per_pod = static_cast<uint32_t>(radix / parts);
  spec.hosts_per_leaf = radix - spec.aggregations_per_pod;
  spec.leaves_per_pod = radix / 2;
  spec.cores_per_aggregation = radix / 2;
  const uint64_t pod = uint64_t{spec.hosts_per_leaf} * spec.leaves_per_pod;
  if (hosts > pod * radix) {
    return impossible(
        "fat tree",
        "hosts is {}, but switches of {} ports carry at most {}; give switches with more ports",
        hosts, radix, pod * radix);
  }
  RETURN_IF_ERROR(check_multiple("fat tree", "hosts", hosts, "the hosts of a pod", pod));
  spec.pods = hosts == 0 ? radix : static_cast<uint32_t>(hosts / pod);
  return spec;
}

Result<Topology> make_rails(const RailSpec& spec) {
  constexpr const char* kShape = "rail-optimised network";
  RETURN_IF_ERROR(check_fields(kShape,
                               {{"servers", spec.servers},
                                {"gpus_per_server", spec.gpus_per_server},
                                {"spines", spec.spines}},
                               {{"cable", spec.cable}, {"uplink", spec.uplink}}));
  const uint32_t group = spec.servers_per_leaf == 0 ? spec.servers : spec.servers_per_leaf;
  RETURN_IF_ERROR(check_multiple(kShape, "servers", spec.servers, "servers_per_leaf", group));
  const uint32_t rails = spec.gpus_per_server;
  const uint64_t hosts = product({spec.servers, rails});
  const uint64_t leaves = product({spec.servers / group, rails});
  RETURN_IF_ERROR(
      check_size(kShape, hosts + leaves + spec.spines, hosts + product({leaves, spec.spines})));

  const LeafSpineSpec tiers{.hosts = static_cast<uint32_t>(hosts),
                            .spines = spec.spines,
                            .cable = spec.cable,
                            .uplink = spec.uplink};
  return two_tiers("rails", tiers, leaves,
                   [&](uint32_t host) { return host / rails / group * rails + host % rails; });
}

}  // namespace pacecar
