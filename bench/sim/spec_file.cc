#include "bench/sim/spec_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/sim/algorithms.h"
#include "bench/sim/spec_parts.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/sim/routing.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

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

}  // namespace

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

}  // namespace pacecar
