// The parts of spec_file.h, one per table of an experiment's file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sim/run_spec.h"
#include "bench/sim/spec_value.h"
#include "transport/base/result.h"

namespace pacecar {

// What tables need of other tables.
struct SpecContext {
  std::string base_dir;
  uint64_t seed = 1;
  const Topology* topology = nullptr;
  Rate line_rate;          // of a host
  Duration base_rtt;       // the longest
  bool many_ways = false;  // packets between two hosts may take different ones
  Bytes bdp = 0;
};

class SpecReader;

// The key `cc` of [transport] or of a job.
std::string read_congestion_control(SpecReader& reader, const std::string& otherwise);

// `name` as it is when absolute, else inside `base_dir`.
std::string path_in(const std::string& base_dir, const std::string& name);

struct TopologyKind {
  std::string_view name;
  std::string_view summary;  // its keys first
  Result<Topology> (*make)(SpecReader& reader);
};
std::span<const TopologyKind> topology_kinds();

// Each `value` holds a table. Errors: kInvalidArgument and those of files.
Result<Topology> read_topology(const SpecValue& value, const std::string& base_dir);
Result<Workload> read_workload(const SpecValue& value, const SpecContext& context);
Result<TransportSpec> read_transport(const SpecValue& value);
// `run` has topology, transport and workload.
Result<FabricConfig> read_fabric(const SpecValue& value, const RunSpec& run,
                                 const SpecContext& context);
// The bytes of a packet on the wire beyond its datagram: needed before the rest of [fabric].
Result<Bytes> read_overhead(const SpecValue& value);
// All [[fault]] of a run's tables, by time.
Result<std::vector<FaultEvent>> read_faults(const SpecTable& spec, const SpecContext& context);
// The [run] table into `spec`.
Result<void> read_run(const SpecValue& value, const SpecContext& context, RunSpec& spec);

}  // namespace pacecar
