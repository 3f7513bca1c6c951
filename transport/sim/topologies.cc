#include "transport/sim/topologies.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Far beyond what a run can simulate; keeps every count within 32 bits.
constexpr uint64_t kMaxNodes = 1 << 20;
constexpr uint64_t kMaxCables = 1 << 23;

tl::unexpected<Error> impossible(std::string_view shape, const std::string& reason) {
  return invalid("a {} cannot be built: {}", shape, reason);
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

// Checks the fields of one spec, and keeps the first error.
class SpecCheck {
 public:
  explicit SpecCheck(std::string_view shape) : shape_(shape) {}

  void positive(std::string_view field, uint32_t value) {
    if (value == 0) refuse(fmt::format("{} is 0; give at least 1", field));
  }

  void cable(std::string_view field, const CableSpec& cable) {
    if (cable.rate == Rate()) refuse(fmt::format("the rate of {} is 0; give one", field));
    if (cable.delay < Duration()) {
      refuse(fmt::format("the delay of {} is negative; give 0 or more", field));
    }
  }

  void multiple(std::string_view field, uint32_t value, std::string_view of, uint64_t unit) {
    if (reason_.empty() && value % unit != 0) {
      refuse(fmt::format("{} is {}, which is no multiple of {} ({}); make it {}", field, value, of,
                         unit, (value / unit + 1) * unit));
    }
  }

  void size(uint64_t nodes, uint64_t cables) {
    if (nodes <= kMaxNodes && cables <= kMaxCables) return;
    refuse(fmt::format("it would have more than {} nodes or {} cables; make it smaller", kMaxNodes,
                       kMaxCables));
  }

  void refuse(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
  }

  Result<void> result() const {
    if (reason_.empty()) return {};
    return impossible(shape_, reason_);
  }

 private:
  std::string_view shape_;
  std::string reason_;
};

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

}  // namespace

Result<Topology> make_star(const StarSpec& spec) {
  SpecCheck check("star");
  check.positive("hosts", spec.hosts);
  check.cable("cable", spec.cable);
  check.size(uint64_t{spec.hosts} + 1, spec.hosts);
  RETURN_IF_ERROR(check.result());

  Builder build("star", spec.hosts);
  const NodeId center = build.switches("switch", 1);
  for (NodeId host = 0; host < spec.hosts; ++host) build.join(host, center, spec.cable);
  return build.take();
}

Result<Topology> make_dumbbell(const DumbbellSpec& spec) {
  SpecCheck check("dumbbell");
  check.positive("left", spec.left);
  check.positive("right", spec.right);
  check.cable("cable", spec.cable);
  check.cable("bottleneck", spec.bottleneck);
  const uint64_t hosts = uint64_t{spec.left} + spec.right;
  check.size(hosts + 2, hosts + 1);
  RETURN_IF_ERROR(check.result());

  Builder build("dumbbell", static_cast<uint32_t>(hosts));
  const NodeId left = build.switches("switch", 2);
  for (NodeId host = 0; host < hosts; ++host) {
    build.join(host, host < spec.left ? left : left + 1, spec.cable);
  }
  build.join(left, left + 1, spec.bottleneck);
  return build.take();
}

Result<Topology> make_leaf_spine(const LeafSpineSpec& spec) {
  SpecCheck check("leaf-spine network");
  check.positive("hosts", spec.hosts);
  check.positive("hosts_per_leaf", spec.hosts_per_leaf);
  check.positive("spines", spec.spines);
  check.positive("bundle", spec.bundle);
  check.cable("cable", spec.cable);
  check.cable("uplink", spec.uplink);
  if (spec.ports_per_host != 1 && spec.ports_per_host != 2) {
    check.refuse(fmt::format("ports_per_host is {}; give 1 or 2", spec.ports_per_host));
  }
  check.multiple("hosts", spec.hosts, "hosts_per_leaf", spec.hosts_per_leaf);
  RETURN_IF_ERROR(check.result());
  const uint32_t ports = spec.ports_per_host;
  const uint64_t leaves = product({spec.hosts / spec.hosts_per_leaf, ports});
  check.size(spec.hosts + leaves + spec.spines,
             product({spec.hosts, ports}) + product({leaves, spec.spines, spec.bundle}));
  RETURN_IF_ERROR(check.result());

  Builder build("leaf-spine", spec.hosts);
  const NodeId leaf = build.switches("leaf", static_cast<uint32_t>(leaves));
  const NodeId spine = build.switches("spine", spec.spines);
  for (NodeId host = 0; host < spec.hosts; ++host) {
    const NodeId first = leaf + host / spec.hosts_per_leaf * ports;
    for (uint32_t port = 0; port < ports; ++port) build.join(host, first + port, spec.cable);
  }
  build.join_all(leaf, leaves, spine, spec.spines, spec.uplink, spec.bundle);
  return build.take();
}

Result<Topology> make_fat_tree(const FatTreeSpec& spec) {
  SpecCheck check("fat tree");
  check.positive("pods", spec.pods);
  check.positive("leaves_per_pod", spec.leaves_per_pod);
  check.positive("hosts_per_leaf", spec.hosts_per_leaf);
  check.positive("aggregations_per_pod", spec.aggregations_per_pod);
  check.positive("cores_per_aggregation", spec.cores_per_aggregation);
  check.positive("leaf_bundle", spec.leaf_bundle);
  check.positive("core_bundle", spec.core_bundle);
  check.cable("cable", spec.cable);
  check.cable("leaf_uplink", spec.leaf_uplink);
  check.cable("core_uplink", spec.core_uplink);
  const uint64_t leaves = product({spec.pods, spec.leaves_per_pod});
  const uint64_t hosts = product({leaves, spec.hosts_per_leaf});
  const uint64_t aggregations = product({spec.pods, spec.aggregations_per_pod});
  const uint64_t cores = product({spec.aggregations_per_pod, spec.cores_per_aggregation});
  check.size(hosts + leaves + aggregations + cores,
             hosts + product({leaves, spec.aggregations_per_pod, spec.leaf_bundle}) +
                 product({aggregations, spec.cores_per_aggregation, spec.core_bundle}));
  RETURN_IF_ERROR(check.result());

  Builder build("fat tree", static_cast<uint32_t>(hosts));
  const NodeId leaf = build.switches("leaf", static_cast<uint32_t>(leaves));
  const NodeId aggregation = build.switches("aggregation", static_cast<uint32_t>(aggregations));
  const NodeId core = build.switches("core", static_cast<uint32_t>(cores));
  for (NodeId host = 0; host < hosts; ++host) {
    build.join(host, leaf + host / spec.hosts_per_leaf, spec.cable);
  }
  for (uint32_t i = 0; i < leaves; ++i) {
    const NodeId first = aggregation + i / spec.leaves_per_pod * spec.aggregations_per_pod;
    for (uint32_t j = 0; j < spec.aggregations_per_pod; ++j) {
      build.join(leaf + i, first + j, spec.leaf_uplink, spec.leaf_bundle);
    }
  }
  for (uint32_t i = 0; i < aggregations; ++i) {
    const NodeId first = core + i % spec.aggregations_per_pod * spec.cores_per_aggregation;
    for (uint32_t j = 0; j < spec.cores_per_aggregation; ++j) {
      build.join(aggregation + i, first + j, spec.core_uplink, spec.core_bundle);
    }
  }
  return build.take();
}

Result<FatTreeSpec> fat_tree_of_radix(uint32_t radix, uint32_t hosts, uint32_t oversubscription) {
  SpecCheck check("fat tree");
  check.positive("oversubscription", oversubscription);
  // Half of an aggregation switch's ports, and one of `parts` of a leaf's, go up.
  const uint64_t parts = uint64_t{oversubscription} + 1;
  const uint64_t unit = parts % 2 == 0 ? parts : 2 * parts;
  if (radix == 0 || radix % unit != 0) {
    check.refuse(fmt::format("the radix is {}; with oversubscription {} give a multiple of {}",
                             radix, oversubscription, unit));
  }
  RETURN_IF_ERROR(check.result());

  FatTreeSpec spec;
  spec.aggregations_per_pod = static_cast<uint32_t>(radix / parts);
  spec.hosts_per_leaf = radix - spec.aggregations_per_pod;
  spec.leaves_per_pod = radix / 2;
  spec.cores_per_aggregation = radix / 2;
  const uint64_t pod = uint64_t{spec.hosts_per_leaf} * spec.leaves_per_pod;
  check.multiple("hosts", hosts, "the hosts of a pod", pod);
  if (hosts / pod > radix) {
    check.refuse(fmt::format(
        "hosts is {}, but switches of {} ports carry at most {}; give switches with more ports",
        hosts, radix, pod * radix));
  }
  RETURN_IF_ERROR(check.result());
  spec.pods = hosts == 0 ? radix : static_cast<uint32_t>(hosts / pod);
  return spec;
}

Result<Topology> make_rails(const RailSpec& spec) {
  SpecCheck check("rail-optimised network");
  check.positive("servers", spec.servers);
  check.positive("gpus_per_server", spec.gpus_per_server);
  check.positive("spines", spec.spines);
  check.cable("cable", spec.cable);
  check.cable("uplink", spec.uplink);
  const uint32_t group = spec.servers_per_leaf == 0 ? spec.servers : spec.servers_per_leaf;
  if (group != 0) check.multiple("servers", spec.servers, "servers_per_leaf", group);
  RETURN_IF_ERROR(check.result());
  const uint32_t rails = spec.gpus_per_server;
  const uint64_t hosts = product({spec.servers, rails});
  const uint64_t leaves = product({spec.servers / group, rails});
  check.size(hosts + leaves + spec.spines, hosts + product({leaves, spec.spines}));
  RETURN_IF_ERROR(check.result());

  Builder build("rails", static_cast<uint32_t>(hosts));
  const NodeId leaf = build.switches("leaf", static_cast<uint32_t>(leaves));
  const NodeId spine = build.switches("spine", spec.spines);
  for (NodeId host = 0; host < hosts; ++host) {
    const uint32_t server = host / rails;
    build.join(host, leaf + server / group * rails + host % rails, spec.cable);
  }
  build.join_all(leaf, leaves, spine, spec.spines, spec.uplink);
  return build.take();
}

}  // namespace pacecar
