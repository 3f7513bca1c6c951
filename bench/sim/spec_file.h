// Makes a RunSpec of an experiment's TOML tables. README.md lists the tables, their keys, units and
// defaults; unknown, wrongly typed or impossible values are refused with one sentence that names
// file, line, cause and cure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sim/ideal.h"
#include "bench/sim/run_spec.h"
#include "bench/sim/spec_value.h"
#include "transport/base/result.h"

namespace pacecar {

class SpecReader;

// The top-level tables of a run; anything else in `spec` is refused. A plan takes its own tables
// (arms, factors, ...) out first.
inline constexpr std::string_view kRunTables[] = {"topology",  "hosts", "fabric", "workload",
                                                  "transport", "fault", "run"};

// `base_dir`: where relative names of files in the spec start; empty: the working directory. `seed`
// replaces that of [run]; it also goes into random workloads. Errors: kInvalidArgument, and those
// of files.
Result<RunSpec> make_run_spec(const SpecTable& spec, const std::string& base_dir,
                              std::optional<uint64_t> seed = std::nullopt);

// The packets that the transport of a run makes; `overhead` is the bytes of a packet on the wire
// beyond its datagram.
PacketSizes packet_sizes(const RunSpec& run, Bytes overhead);

// A table from its short form: "leaf-spine:hosts=128,rate=400G" is kind = "leaf-spine", and so on.
// A name that ends in ".topo" or ".cm" is file = "...". Errors: kInvalidArgument.
Result<SpecTable> table_from_short_form(std::string_view text);

struct TopologyKind {
  std::string_view name;
  std::string_view summary;  // its keys first
  Result<Topology> (*make)(SpecReader& reader);
};
std::span<const TopologyKind> topology_kinds();

// --- the parts, one per table; each `value` holds a table ---

// What tables need of other tables.
struct SpecContext {
  std::string base_dir;
  uint64_t seed = 1;
  const Topology* topology = nullptr;
  Rate line_rate;                  // of a host
  Duration base_rtt;               // the longest
  bool has_several_paths = false;  // packets between two hosts may take different ones
  Bytes bdp = 0;
};

// The key `cc` of [transport] or of a job.
std::string read_congestion_control(SpecReader& reader, const std::string& otherwise);
// `name` as it is when absolute, else inside `base_dir`.
std::string path_in(const std::string& base_dir, const std::string& name);

// Errors: kInvalidArgument, and as for reading files.
Result<Topology> read_topology(const SpecValue& value, const std::string& base_dir);
Result<Workload> read_workload(const SpecValue& value, const SpecContext& context);
// A profile by name or file; without a model an ideal host.
Result<HostProfile> read_hosts(const SpecValue& value, const std::string& base_dir);
Result<TransportSpec> read_transport(const SpecValue& value, const HostProfile& hosts);
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
