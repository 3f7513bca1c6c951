#include "bench/sim/spec_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/sim/routing.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// Values to which other tables refer: rates, round trips, bandwidth-delay products.
Result<SpecContext> make_context(const RunSpec& run, Bytes overhead, const std::string& base_dir) {
  SpecContext context{.base_dir = base_dir, .seed = run.seed, .topology = &run.topology};
  ASSIGN_OR_RETURN(const auto routing, make_routing(run.topology));
  context.line_rate = std::ranges::max(host_limits(run.topology).out);
  context.base_rtt = longest_round_trip(run.topology, routing, packet_sizes(run, overhead));
  context.bdp = context.line_rate.bytes_in(context.base_rtt);
  context.has_several_paths = has_several_paths(run.topology, routing);
  return context;
}

// Hosts' stacks lengthen the cables to hosts.
void add_stacks(RunSpec& run) {
  for (Cable& cable : run.topology.cables) {
    if (std::min(cable.a, cable.b) >= run.topology.hosts) continue;
    cable.delay = cable.delay + run.hosts.stack;
  }
}

// How long the last packet of a full queue waits, on the slowest cable.
Duration full_queue(const RunSpec& run) {
  const SwitchConfig& switches = run.fabric.switches;
  const Bytes queue = switches.queue_bytes != 0 ? switches.queue_bytes : switches.buffer_bytes;
  return std::ranges::min(run.topology.cables, {}, &Cable::rate).rate.time_for(queue);
}

// The default of TransportSpec::reordering. A packet that finds empty queues overtakes packets of
// its flow that wait in a long queue; between switches, where there are several ways, queues are
// seldom more than half full.
Duration usual_reordering(const RunSpec& run, const SpecContext& context) {
  if (!context.has_several_paths || !run.transport.spreads()) return {};
  return full_queue(run) / 2 + context.base_rtt;
}

// Refuses a run for which the memory of this machine is too small, by the measured memory of a
// process and of a connection (64-bit, 2026-11-30).
Result<void> check_memory(const RunSpec& run) {
  constexpr uint64_t kPerProcess = 64 << 10;
  constexpr uint64_t kPerConnection = 64 << 10;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  pairs.reserve(run.workload.flows.size());
  for (const WorkloadFlow& flow : run.workload.flows) {
    pairs.emplace_back(flow.source, flow.destination);
  }
  std::ranges::sort(pairs);
  const auto connections =
      static_cast<uint64_t>(std::ranges::unique(pairs).begin() - pairs.begin());
  const uint64_t processes = run.topology.all_processes();
  const uint64_t bytes = processes * kPerProcess + connections * kPerConnection;
  const auto here =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes <= here) return {};
  constexpr double kGiB = 1 << 30;
  return invalid(
      "{} hosts with {} connections would take about {:.0f} GiB of memory, and this machine has "
      "{:.0f}: use fewer hosts or flows",
      run.topology.hosts, connections, static_cast<double>(bytes) / kGiB,
      static_cast<double>(here) / kGiB);
}

}  // namespace

PacketSizes packet_sizes(const RunSpec& run, Bytes overhead) {
  return {.mtu = run.transport.mtu,
          .overhead = wire::kDataHeaderBytes + wire::kChecksumBytes + overhead,
          .ack = wire::ack_bytes(0) + wire::kChecksumBytes + overhead};
}

Result<RunSpec> make_run_spec(const SpecTable& spec, const std::string& base_dir,
                              std::optional<uint64_t> seed) {
  RETURN_IF_ERROR(check_tables(spec, kRunTables, "fault"));
  RunSpec run;
  const SpecValue& run_table = table_or_empty(spec, "run");
  const SpecValue& fabric_table = table_or_empty(spec, "fabric");
  const SpecValue& workload_table = table_or_empty(spec, "workload");
  SpecReader seeds(run_table, "[run]");
  run.seed = seed.value_or(seeds.whole("seed", 1, 0, UINT64_MAX));
  if (seeds.failed()) return tl::unexpected(seeds.finish().error());

  ASSIGN_OR_RETURN(run.topology, read_topology(table_or_empty(spec, "topology"), base_dir));
  RETURN_IF_ERROR(check_memory(run));  // before its routes are computed
  ASSIGN_OR_RETURN(run.hosts, read_hosts(table_or_empty(spec, "hosts"), base_dir));
  add_stacks(run);
  ASSIGN_OR_RETURN(run.transport, read_transport(table_or_empty(spec, "transport"), run.hosts));
  ASSIGN_OR_RETURN(const auto overhead, read_overhead(fabric_table));
  ASSIGN_OR_RETURN(const auto context, make_context(run, overhead, base_dir));

  ASSIGN_OR_RETURN(run.workload, read_workload(workload_table, context));
  RETURN_IF_ERROR(check_memory(run));
  if (const auto algorithms = algorithms_of(run); !algorithms) {
    return fail(
        algorithms.error().code,
        fmt::format("{}: [workload]: {}", workload_table.place.text(), algorithms.error().message));
  }
  ASSIGN_OR_RETURN(run.fabric, read_fabric(fabric_table, run, context));
  ASSIGN_OR_RETURN(run.faults, read_faults(spec, context));
  run.name = fmt::format("{} on {}", run.workload.name, run.topology.name);
  RETURN_IF_ERROR(read_run(run_table, context, run));
  if (run.transport.base_rtt == Duration()) run.transport.base_rtt = context.base_rtt;
  if (run.transport.reordering == Duration()) {
    run.transport.reordering = usual_reordering(run, context);
  }
  // Without either, nothing would tell that a packet is lost.
  if (run.transport.reordering == Duration::max() && run.transport.timeout == Duration()) {
    run.transport.timeout = (full_queue(run) + context.base_rtt) * 2;
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

}  // namespace pacecar
