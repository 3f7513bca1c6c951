#include "bench/predict/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "bench/cli/command_line.h"
#include "bench/sim/spec_reader.h"
#include "net_plugin/predict/predict.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"

namespace pacecar::predict {
namespace {

constexpr Bytes kLargestSize = Bytes{1} << 44;

// The enumerator with this name, of those whose names are given.
template <typename Name>
std::optional<Name> named(std::string_view name, std::span<const std::string_view> names) {
  const auto found =
      std::ranges::find_if(names, [=](std::string_view one) { return same_name(one, name); });
  if (found == names.end()) return std::nullopt;
  return static_cast<Name>(found - names.begin());
}

double seconds(SpecReader& reader, std::string_view key, double otherwise) {
  return reader.duration(key, Duration::from_ns(static_cast<int64_t>(otherwise * 1e9))).seconds();
}

double rate(SpecReader& reader, std::string_view key, double otherwise) {
  const auto bits = static_cast<uint64_t>(otherwise * 8);
  return reader.rate(key, Rate::from_bps(bits)).real_bps() / 8;
}

// [topology]: keys as in experiments, but with oversubscription in place of spines.
Result<void> read_topology(const SpecTable& tables, Cluster& cluster) {
  constexpr std::array<std::string_view, 3> kKinds{"leaf-spine", "rail", "star"};
  SpecReader reader(table_or_empty(tables, "topology"), "[topology]");
  const size_t kind = reader.choice("kind", 0, kKinds);
  Fabric& fabric = cluster.fabric;
  fabric.rails = kind == 1;
  cluster.groups[0].hosts = reader.whole<uint32_t>("hosts", 2, 1, 10'000'000);
  if (kind != 2) {
    fabric.hosts_per_leaf = reader.whole<uint32_t>("hosts_per_leaf", 0);
    fabric.oversubscription = reader.number("oversubscription", 1, 0.01, 1000);
  }
  fabric.cable_latency_s = seconds(reader, "delay", fabric.cable_latency_s);
  fabric.core_efficiency = reader.number("core_efficiency", fabric.core_efficiency, 0.01, 1);
  return reader.finish();
}

// The kind of a NIC by its name: described by [nic.NAME], or else the name is its rate.
Result<uint32_t> find_nic(const std::string& name, const SpecPlace& place, const SpecTable& tables,
                          Cluster& cluster) {
  for (uint32_t i = 0; i < cluster.nic_kinds.size(); ++i) {
    if (cluster.nic_kinds[i].name == name) return i;
  }
  const SpecValue* described = table_or_empty(tables, "nic").table()->find(name);
  if (described != nullptr && described->table() == nullptr) {
    return invalid("{}: nic.{} is no table: write [nic.{}]", described->place.text(), name, name);
  }
  SpecTable by_name;
  by_name.set("rate", SpecValue{.value = name, .place = place});
  SpecReader reader(described == nullptr ? by_name : *described->table(),
                    fmt::format("[nic.{}]", name), place);
  NicKind kind{.name = name};
  kind.rate = rate(reader, "rate", kind.rate);
  kind.efficiency = reader.number("efficiency", kind.efficiency, 0.01, 1);
  kind.latency_s = seconds(reader, "latency", kind.latency_s);
  kind.per_message_s = seconds(reader, "per_message", kind.per_message_s);
  kind.packet_bytes = static_cast<double>(reader.bytes("mtu", 4096));
  kind.packet_overhead = static_cast<double>(reader.bytes("overhead", 110));
  kind.ack_bytes = static_cast<double>(reader.bytes("ack", 106));
  if (kind.rate <= 0) reader.complain("rate", "is 0: give the NIC's, such as rate = \"400G\"");
  if (kind.packet_bytes <= 0) reader.complain("mtu", "is 0: give a packet's payload");
  RETURN_IF_ERROR(reader.finish());
  cluster.nic_kinds.push_back(std::move(kind));
  return static_cast<uint32_t>(cluster.nic_kinds.size() - 1);
}

// [host]: nics = ["400G", "400G"], or one name, of which each GPU has a NIC.
Result<void> read_host(const SpecTable& tables, Cluster& cluster) {
  const SpecValue& value = table_or_empty(tables, "host");
  SpecReader reader(value, "[host]");
  HostGroup& group = cluster.groups[0];
  group.gpus = reader.whole<uint32_t>("gpus", 8, 1, 1024);
  group.nvlink_rate = rate(reader, "nvlink", group.nvlink_rate);
  group.nvlink_latency_s = seconds(reader, "nvlink_latency", group.nvlink_latency_s);
  group.nvls = reader.flag("nvls", false);
  if (group.nvlink_rate <= 0)
    reader.complain("nvlink", "is 0: give what a GPU sends, such as \"3600G\"");
  std::vector<std::string> names;
  const SpecValue* nics = reader.value("nics");
  if (nics != nullptr && nics->list() != nullptr) {
    for (const SpecValue& each : *nics->list()) {
      if (each.string() == nullptr) reader.complain("nics", "has an entry that is not a name");
      if (each.string() != nullptr) names.push_back(*each.string());
    }
  } else if (nics != nullptr && nics->string() == nullptr) {
    reader.complain("nics", "takes a rate with its unit such as 400G, a [nic.NAME], or a list");
  } else {
    names.assign(group.gpus, reader.text("nics", "400G"));
  }
  RETURN_IF_ERROR(reader.finish());
  if (names.empty() || names.size() > 64) {
    return invalid("{}: [host] nics names {} NICs: name 1 to 64", value.place.text(), names.size());
  }
  cluster.nic_kinds.clear();
  group.nics.clear();
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const auto kind, find_nic(name, value.place, tables, cluster));
    group.nics.push_back(kind);
  }
  return {};
}

// [library] and [protocol.NAME].
Result<void> read_library(const SpecTable& tables, Description& found) {
  constexpr std::array<std::string_view, 2> kLibraries{"nccl", "messages"};
  SpecReader reader(table_or_empty(tables, "library"), "[library]");
  found.overheads = reader.choice("kind", 0, kLibraries) == 0 ? nccl_costs() : message_costs();
  RETURN_IF_ERROR(reader.finish());
  for (const auto& [name, table] : table_or_empty(tables, "protocol").table()->entries()) {
    const auto protocol = named<Protocol>(name, kProtocolNames);
    if (!protocol || table.table() == nullptr) {
      return invalid(
          "{}: [protocol.{}] is no protocol's table: use [protocol.Simple], "
          "[protocol.LL] or [protocol.LL128]",
          table.place.text(), name);
    }
    SpecReader each(table, fmt::format("[protocol.{}]", name));
    ProtocolCosts& costs = found.overheads.protocols[static_cast<size_t>(*protocol)];
    costs.launch_s = seconds(each, "launch", costs.launch_s);
    costs.step_s = seconds(each, "step", costs.step_s);
    costs.local_step_s = seconds(each, "local_step", costs.local_step_s);
    costs.payload = each.number("payload", costs.payload, 0.01, 1);
    costs.rate_share = each.number("rate_share", costs.rate_share, 0.01, 1);
    costs.chunk = each.bytes("chunk", costs.chunk);
    costs.slots = each.whole<uint32_t>("slots", costs.slots, 1, 64);
    costs.slices = each.whole<uint32_t>("slices", costs.slices, 1, 64);
    costs.ring_chunks = each.whole<uint32_t>("ring_chunks", costs.ring_chunks, 1, 64);
    RETURN_IF_ERROR(each.finish());
  }
  return {};
}

// The names of a list such as "allreduce,alltoall"; "all": every one.
template <typename Name>
void read_names(SpecReader& reader, std::string_view key, const char* otherwise,
                std::span<const std::string_view> names, std::vector<Name>& found) {
  const std::string text = reader.text(key, otherwise);
  std::string_view left = text;
  do {
    const std::string_view word = take_until(left, ',');
    if (word != "all" && !named<Name>(word, names)) {
      reader.complain(key, fmt::format("names '{}'{}: use {}, or all", word,
                                       did_you_mean(word, names), fmt::join(names, ", ")));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (word == "all" || same_name(word, names[i])) found.push_back(static_cast<Name>(i));
    }
  } while (!left.empty());
}

Result<Bytes> parse_size(std::string_view text) {
  std::string number(text);
  const std::string wrong = cli::byte_count(1, kLargestSize)(number);
  if (!wrong.empty()) return fail(ErrorCode::kInvalidArgument, "has " + wrong);
  return *to_number<Bytes>(number);
}

// FROM:TO, or FROM:TO:xFACTOR.
Result<std::vector<Bytes>> parse_range(std::string_view text) {
  std::string_view left = text;
  ASSIGN_OR_RETURN(const auto from, parse_size(take_until(left, ':')));
  ASSIGN_OR_RETURN(const auto to, parse_size(take_until(left, ':')));
  const std::string_view step = left.empty() ? "x2" : left;
  const auto factor = step.starts_with('x') ? parse_size(step.substr(1)) : Result<Bytes>(0);
  if (!factor || *factor < 2 || from > to) {
    return invalid("is '{}': write FROM:TO:xFACTOR, as 8:16G:x4", text);
  }
  std::vector<Bytes> sizes{from};
  while (sizes.back() <= to / *factor) sizes.push_back(sizes.back() * *factor);
  return sizes;
}

// "8:16G:x4", "64K", "1K,1M". A plain number is in bytes; K, M and G are powers of 1024.
Result<std::vector<Bytes>> parse_sizes(std::string_view text) {
  if (text.find(':') != std::string_view::npos) return parse_range(text);
  std::vector<Bytes> sizes;
  do {
    ASSIGN_OR_RETURN(const auto size, parse_size(take_until(text, ',')));
    sizes.push_back(size);
  } while (!text.empty());
  return sizes;
}

Result<void> read_collective(const SpecTable& tables, Description& found) {
  constexpr uint64_t kMost = 1'000'000;
  SpecReader reader(table_or_empty(tables, "collective"), "[collective]");
  read_names(reader, "op", "allreduce", kOperationNames, found.operations);
  read_names(reader, "algorithm", "all", kAlgorithmNames, found.algorithms);
  read_names(reader, "protocol", "all", kProtocolNames, found.protocols);
  found.like.channels = reader.whole<uint32_t>("channels", 0, 0, 1024);
  found.like.pieces = reader.whole<uint32_t>("pieces", 0, 0, kMost);
  found.like.group = reader.whole<uint32_t>("group", 0, 0, kMost);
  found.like.parallel = reader.whole<uint32_t>("parallel", 0, 0, kMost);
  const auto sizes = parse_sizes(reader.text("sizes", "8:16G:x4"));
  if (!sizes) reader.complain("sizes", sizes.error().message);
  RETURN_IF_ERROR(reader.finish());
  found.sizes = *sizes;
  return {};
}

// Groups of a hierarchical collective are alike, and at least one is planned.
Result<void> check_group(const Description& found) {
  const uint32_t ranks = ranks_of(found.cluster, {});
  const uint32_t gpus = found.cluster.groups.front().gpus;
  const uint32_t planned = std::min(found.cluster.hosts(), Limits().hosts) * gpus;
  const uint32_t group = found.like.group;
  if (group == 0 || (ranks % group == 0 && planned % group == 0)) return {};
  return invalid("[collective]: group is {}: give a divisor of the {} ranks{}", group, ranks,
                 planned < ranks ? fmt::format(", and of the {} that are computed", planned) : "");
}

}  // namespace

Result<Description> read_description(const SpecTable& tables) {
  Description found;
  constexpr std::string_view kTables[] = {"topology", "host",     "nic",       "background",
                                          "library",  "protocol", "collective"};
  RETURN_IF_ERROR(check_tables(tables, kTables));
  RETURN_IF_ERROR(read_topology(tables, found.cluster));
  RETURN_IF_ERROR(read_host(tables, found.cluster));
  RETURN_IF_ERROR(read_library(tables, found));
  RETURN_IF_ERROR(read_collective(tables, found));
  RETURN_IF_ERROR(check_group(found));
  SpecReader reader(table_or_empty(tables, "background"), "[background]");
  found.cluster.background.nics = reader.number("nics", 0, 0, 0.99);
  found.cluster.background.core = reader.number("core", 0, 0, 0.99);
  RETURN_IF_ERROR(reader.finish());
  return found;
}

}  // namespace pacecar::predict
