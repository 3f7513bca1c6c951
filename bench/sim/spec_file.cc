#include "bench/sim/spec_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "bench/sim/spec_value.h"
#include "bench/workload/workload_spec.h"
#include "cc/registry.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// --- [run] and [[fault]] ---

constexpr std::array<std::string_view, 7> kFaultKinds{"cable-down", "cable-up",    "cable-rate",
                                                      "cable-loss", "host-frozen", "word-loss",
                                                      "packet-loss"};

// A cable by its number or by one of its directions: "leaf 0 > spine 2".
uint32_t read_cable(SpecReader& reader, const Topology& topology) {
  const SpecValue* value = reader.value("cable");
  if (value == nullptr) {
    reader.complain("cable", "is missing: write which, such as cable = \"leaf 0 > spine 2\"");
    return 0;
  }
  if (value->string() == nullptr) {
    return static_cast<uint32_t>(reader.whole("cable", 0, 0, topology.cables.size() - 1));
  }
  const auto link = find_link(topology, *value->string());
  if (link) return *link / 2;
  reader.complain("cable", fmt::format("is {}: {}", to_text(*value), link.error().message));
  return 0;
}

// A host's fault applies to all its processes, unless it names one.
std::vector<FaultEvent> of_processes(SpecReader& reader, const FaultEvent& fault,
                                     const Topology& topology) {
  const auto host = static_cast<uint32_t>(reader.whole("host", 0, 0, topology.hosts - 1));
  const bool all = !reader.has("process");
  const auto one = static_cast<uint32_t>(reader.whole("process", 0, 0, topology.processes - 1));
  std::vector<FaultEvent> faults;
  for (uint32_t process = 0; process < topology.processes; ++process) {
    if (!all && process != one) continue;
    faults.push_back(fault);
    faults.back().target = host * topology.processes + process;
  }
  return faults;
}

// One fault, or one for each process of its host.
Result<std::vector<FaultEvent>> read_fault(const SpecValue& value, const SpecContext& context) {
  SpecReader reader(*value.table(), "[[fault]]", value.place);
  FaultEvent fault;
  fault.at = reader.duration("at", Duration());
  if (!reader.has("kind")) {
    reader.complain("kind",
                    fmt::format("is missing: it takes one of {}", fmt::join(kFaultKinds, ", ")));
  }
  fault.kind = static_cast<FaultKind>(reader.choice("kind", 0, kFaultKinds));
  const bool of_host = fault.kind == FaultKind::kHostFrozen || fault.kind == FaultKind::kWordLoss;
  if (fault.kind == FaultKind::kHostFrozen) {
    fault.length = reader.duration("length", Duration::from_us(100));
  } else if (fault.kind == FaultKind::kWordLoss) {
    fault.everywhere = !reader.has("host");
  } else if (fault.kind != FaultKind::kPacketLoss) {
    fault.target = read_cable(reader, *context.topology);
  }
  if (fault.kind == FaultKind::kCableRate) {
    fault.rate = reader.rate("rate", Rate());
    if (fault.rate == Rate()) {
      reader.complain("rate", "is missing or 0: a cable without a rate is a cable-down");
    }
  }
  if (fault.kind == FaultKind::kCableLoss || fault.kind == FaultKind::kWordLoss ||
      fault.kind == FaultKind::kPacketLoss) {
    fault.probability = reader.number("probability", 0.01, 0.0, 1.0);
  }
  std::vector<FaultEvent> faults{fault};
  if (of_host && !fault.everywhere) faults = of_processes(reader, fault, *context.topology);
  RETURN_IF_ERROR(reader.finish());
  return faults;
}

Result<std::vector<FaultEvent>> read_faults(const SpecTable& spec, const SpecContext& context) {
  std::vector<FaultEvent> faults;
  ASSIGN_OR_RETURN(const auto tables, tables_of(spec, "fault", "fault"));
  for (const SpecValue* table : tables) {
    ASSIGN_OR_RETURN(const auto read, read_fault(*table, context));
    faults.insert(faults.end(), read.begin(), read.end());
  }
  std::ranges::stable_sort(faults, {}, &FaultEvent::at);
  return faults;
}

Result<void> read_run(const SpecValue& value, const SpecContext& context, RunSpec& spec) {
  SpecReader reader(*value.table(), "[run]", value.place);
  spec.name = reader.text("name", spec.name);
  reader.whole("seed", 1, 0, UINT64_MAX);  // used before anything else
  spec.time_limit = reader.duration("time_limit", spec.time_limit);
  spec.sampling.interval = reader.duration("sample_interval", spec.sampling.interval);
  spec.sampling.warm_up = reader.duration("warm_up", spec.sampling.warm_up);
  spec.sampling.points = reader.whole("sample_points", spec.sampling.points, 2, 1'000'000);
  spec.sampling.series = reader.whole("sample_series", spec.sampling.series, 0, 10'000);
  spec.pcap = reader.text("pcap", "");
  spec.pcap_link = reader.text("pcap_link", "");
  spec.trace = reader.text("trace", "");
  if (spec.time_limit <= Duration()) reader.complain("time_limit", "is 0: nothing would run");
  if (spec.pcap.empty() != spec.pcap_link.empty()) {
    reader.complain("pcap", "goes with pcap_link, such as pcap_link = \"leaf 0 > host 3\"");
  } else if (!spec.pcap.empty()) {
    const auto link = find_link(*context.topology, spec.pcap_link);
    if (!link) reader.complain("pcap_link", fmt::format("is wrong: {}", link.error().message));
  }
  return reader.finish();
}

// --- [workload]: kind and its keys, file = "x.cm", or a list of [[workload.job]] ---

// A list of hosts, or a count: the first ones.
std::vector<uint32_t> read_hosts(SpecReader& reader, uint32_t hosts) {
  const SpecValue* value = reader.value("hosts");
  if (value == nullptr) return {};
  if (value->list() != nullptr) return reader.wholes("hosts", hosts - 1);
  std::vector<uint32_t> chosen(reader.whole("hosts", hosts, 1, hosts));
  std::iota(chosen.begin(), chosen.end(), 0U);
  return chosen;
}

void read_processes(SpecReader& reader, uint32_t processes, WorkloadSpec& spec) {
  spec.processes = reader.wholes("processes", processes - 1);
  spec.split = reader.flag("split", false);
}

// A name with a dot is the path of a file of sizes, other names are built-in distributions.
std::string read_sizes(SpecReader& reader, const SpecContext& context, std::string otherwise) {
  const std::string sizes = reader.text("sizes", std::move(otherwise));
  return sizes.find('.') == std::string::npos ? sizes : path_in(context.base_dir, sizes);
}

Result<WorkloadSpec> read_spec(const SpecValue& value, const SpecContext& context);

Result<void> read_jobs(SpecReader& reader, const SpecTable& table, const SpecContext& context,
                       WorkloadSpec& spec) {
  if (!reader.has("job")) reader.complain("job", "is missing: write each as [[workload.job]]");
  ASSIGN_OR_RETURN(const auto jobs, tables_of(table, "job", "workload.job"));
  for (const SpecValue* job : jobs) {
    ASSIGN_OR_RETURN(spec.jobs.emplace_back(), read_spec(*job, context));
  }
  return {};
}

void read_keys(SpecReader& reader, const WorkloadKind& kind, const SpecContext& context,
               WorkloadSpec& spec) {
  const auto takes = [&kind](std::string_view key) {
    return kind.keys.find(fmt::format("{} ", key)) != std::string_view::npos;
  };
  if (takes("bytes")) spec.bytes = reader.bytes("bytes", spec.bytes);
  constexpr std::tuple<const char*, uint32_t WorkloadSpec::*, uint32_t> kCounts[] = {
      {"senders", &WorkloadSpec::senders, 0},
      {"receivers", &WorkloadSpec::receivers, 1},
      {"hosts_per_leaf", &WorkloadSpec::hosts_per_leaf, 1},
      {"hosts_per_server", &WorkloadSpec::hosts_per_server, 1},
      {"parallel", &WorkloadSpec::parallel, 0},
      {"pieces", &WorkloadSpec::pieces, 1},
      {"microbatches", &WorkloadSpec::microbatches, 1}};
  for (const auto& [key, count, least] : kCounts) {
    if (takes(key)) spec.*count = static_cast<uint32_t>(reader.whole(key, spec.*count, least));
  }
  if (takes("stagger")) spec.stagger = reader.duration("stagger", spec.stagger);
  if (takes("sizes")) spec.sizes = read_sizes(reader, context, spec.sizes);
  if (takes("load")) spec.load = reader.number("load", spec.load, 0.001, 1.0);
  if (takes("rate")) spec.rate = reader.rate("rate", context.line_rate);
  if (takes("length")) spec.length = reader.duration("length", spec.length);
  if (takes("compute")) spec.compute = reader.duration("compute", spec.compute);
}

Result<WorkloadSpec> read_spec(const SpecValue& value, const SpecContext& context) {
  SpecReader reader(*value.table(), "[workload]", value.place);
  WorkloadSpec spec;
  spec.name = reader.text("name", "");
  spec.congestion_control = read_congestion_control(reader, "");
  spec.weight = static_cast<uint32_t>(reader.whole("weight", 1, 1, kMaxWeight));
  if (reader.has("file")) {
    spec.kind = "file";
    spec.file = path_in(context.base_dir, reader.text("file", ""));
    read_processes(reader, context.topology->processes, spec);
  } else {
    const auto kinds = workload_kinds();  // the last one is the mixture
    const size_t otherwise = value.table()->find("job") == nullptr ? 0 : kinds.size() - 1;
    const WorkloadKind& kind = kinds[reader.choice("kind", otherwise, names_of(kinds))];
    spec.kind = kind.name;
    if (kind.make != nullptr) {
      spec.hosts = read_hosts(reader, context.topology->hosts);
      read_processes(reader, context.topology->processes, spec);
      spec.shuffle = reader.flag("shuffle", false);
      spec.start = reader.duration("start", Duration());
    }
    read_keys(reader, kind, context, spec);
    // A complaint about an earlier key stands.
    if (kind.make == nullptr) reader.keep(read_jobs(reader, *value.table(), context, spec));
  }
  RETURN_IF_ERROR(reader.finish());
  return spec;
}

Result<Workload> read_workload(const SpecValue& value, const SpecContext& context) {
  ASSIGN_OR_RETURN(const auto spec, read_spec(value, context));
  auto workload =
      make_workload(spec, context.topology->hosts, context.seed, context.topology->processes);
  if (workload) return workload;
  return fail(workload.error().code,
              fmt::format("{}: [workload]: {}", value.place.text(), workload.error().message));
}

// --- the tables together ---

// The table of this name; an empty one when it is missing.
const SpecValue& part_of(const SpecTable& spec, std::string_view name) {
  static const SpecValue kEmpty{.value = SpecTable(),
                                .place = {std::make_shared<const std::string>("defaults"), 0}};
  const SpecValue* value = spec.find(name);
  return value == nullptr ? kEmpty : *value;
}

Result<void> check_tables(const SpecTable& spec) {
  for (const auto& [key, value] : spec.entries()) {
    if (std::ranges::find(kRunTables, key) == std::end(kRunTables)) {
      return invalid("{}: there is no table [{}]{}: use {}", value.place.text(), key,
                     did_you_mean(key, kRunTables), fmt::join(kRunTables, ", "));
    }
    if (key != "fault" && value.table() == nullptr) {
      return invalid("{}: {} is {}: write it as a table [{}]", value.place.text(), key,
                     kind_of(value), key);
    }
  }
  return {};
}

// What other tables refer to: rates, round trips, bandwidth-delay products.
Result<SpecContext> make_context(const RunSpec& run, Bytes overhead, const std::string& base_dir) {
  SpecContext context{.base_dir = base_dir, .seed = run.seed, .topology = &run.topology};
  ASSIGN_OR_RETURN(const auto routing, make_routing(run.topology));
  context.line_rate = std::ranges::max(host_limits(run.topology).out);
  context.base_rtt = longest_round_trip(run.topology, routing, packet_sizes(run, overhead));
  context.bdp = context.line_rate.bytes_in(context.base_rtt);
  context.many_ways = many_ways(run.topology, routing);
  return context;
}

// The default of TransportSpec::reordering. A packet that finds empty queues overtakes those of its
// flow that wait in a long one; between switches, where there are several ways, queues are seldom
// more than half full.
Duration usual_reordering(const RunSpec& run, const SpecContext& context) {
  if (!context.many_ways || !run.transport.spreads()) return {};
  const SwitchConfig& switches = run.fabric.switches;
  const Bytes queue = switches.queue_bytes != 0 ? switches.queue_bytes : switches.buffer_bytes;
  const Rate slowest = std::ranges::min(run.topology.cables, {}, &Cable::rate).rate;
  return slowest.time_for(queue / 2) + context.base_rtt;
}

constexpr std::string_view kNoAllocator = "none";  // of algorithms that take no grants

// Sets a host's value; fails if it has another one already. `both` is the error, with places for
// the host, the old value and the new one.
template <typename T>
Result<void> assign(T& slot, const T& value, fmt::format_string<uint32_t&, T&, const T&> both,
                    uint32_t host) {
  if (slot == T()) slot = value;
  if (slot == value) return {};
  return invalid(both, host, slot, value);
}

}  // namespace

std::string path_in(const std::string& base_dir, const std::string& name) {
  return (std::filesystem::path(base_dir) / name).string();
}

PacketSizes packet_sizes(const RunSpec& run, Bytes overhead) {
  return {.mtu = run.transport.mtu,
          .overhead = wire::kDataHeaderBytes + wire::kChecksumBytes + overhead,
          .ack = wire::ack_bytes(0) + wire::kChecksumBytes + overhead};
}

Result<RunSpec> make_run_spec(const SpecTable& spec, const std::string& base_dir,
                              std::optional<uint64_t> seed) {
  RETURN_IF_ERROR(check_tables(spec));
  RunSpec run;
  const SpecValue& run_table = part_of(spec, "run");
  SpecReader seeds(*run_table.table(), "[run]", run_table.place);
  run.seed = seed.value_or(seeds.whole("seed", 1, 0, UINT64_MAX));
  if (seeds.failed()) return tl::unexpected(seeds.finish().error());

  ASSIGN_OR_RETURN(run.topology, read_topology(part_of(spec, "topology"), base_dir));
  ASSIGN_OR_RETURN(run.transport, read_transport(part_of(spec, "transport")));
  ASSIGN_OR_RETURN(const auto overhead, read_overhead(part_of(spec, "fabric")));
  ASSIGN_OR_RETURN(const auto context, make_context(run, overhead, base_dir));

  ASSIGN_OR_RETURN(run.workload, read_workload(part_of(spec, "workload"), context));
  if (const auto algorithms = algorithms_of(run); !algorithms) {
    return fail(algorithms.error().code,
                fmt::format("{}: [workload]: {}", part_of(spec, "workload").place.text(),
                            algorithms.error().message));
  }
  ASSIGN_OR_RETURN(run.fabric, read_fabric(part_of(spec, "fabric"), run, context));
  ASSIGN_OR_RETURN(run.faults, read_faults(spec, context));
  run.name = fmt::format("{} on {}", run.workload.name, run.topology.name);
  RETURN_IF_ERROR(read_run(run_table, context, run));
  if (run.transport.base_rtt == Duration()) run.transport.base_rtt = context.base_rtt;
  if (run.transport.reordering == Duration()) {
    run.transport.reordering = usual_reordering(run, context);
  }
  return run;
}

Result<SpecTable> table_from_short_form(std::string_view text) {
  SpecTable table;
  const size_t colon = text.find(':');
  const std::string kind(text.substr(0, colon));
  const bool file = kind.ends_with(".topo") || kind.ends_with(".cm");
  table.set(file ? "file" : "kind", SpecValue{.value = kind, .place = {}});
  if (colon == std::string_view::npos) return table;
  for (std::string_view rest = text.substr(colon + 1); !rest.empty();) {
    const size_t comma = rest.find(',');
    RETURN_IF_ERROR(set_spec(table, rest.substr(0, comma)));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return table;
}

Result<Algorithms> algorithms_of(const RunSpec& spec) {
  const size_t hosts = spec.topology.all_processes();
  Algorithms all{std::vector<std::string>(hosts), std::vector<uint32_t>(hosts),
                 std::vector<std::string>(hosts)};
  for (const WorkloadFlow& flow : spec.workload.flows) {
    const WorkloadJob& job = spec.workload.jobs[flow.job];
    const std::string& control =
        job.congestion_control.empty() ? spec.transport.congestion_control : job.congestion_control;
    ASSIGN_OR_RETURN(const auto info, controller_info(control));
    RETURN_IF_ERROR(assign(all.controls[flow.source], control,
                           "host {} would send with both '{}' and '{}': give each job its own "
                           "sending hosts",
                           flow.source));
    RETURN_IF_ERROR(assign(all.weights[flow.source], job.weight,
                           "host {} would send with both weight {} and weight {}: give each job "
                           "its own sending hosts",
                           flow.source));
    const std::string allocator(spec.transport.allocator.empty() ? info.allocator
                                                                 : spec.transport.allocator);
    std::string& slot = all.allocators[flow.destination];
    if (slot == kNoAllocator) slot = allocator;
    if (allocator == kNoAllocator && !slot.empty()) continue;
    RETURN_IF_ERROR(assign(slot, allocator,
                           "host {} would receive with both allocator '{}' and allocator '{}': "
                           "give each job its own receiving hosts, or choose one with "
                           "transport.allocator",
                           flow.destination));
  }
  std::ranges::replace(all.controls, std::string(), spec.transport.congestion_control);
  std::ranges::replace(all.weights, 0U, 1U);
  std::ranges::replace(all.allocators, std::string(), spec.transport.allocator);
  return all;
}

}  // namespace pacecar
