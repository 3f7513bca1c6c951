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

// The top-level tables of a run; anything else in `spec` is refused. A plan takes its own tables
// (arms, factors, ...) out first.
inline constexpr std::string_view kRunTables[] = {"topology",  "fabric", "workload",
                                                  "transport", "fault",  "run"};

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

// Which congestion control, weight and allocator each host of a run has: those of its jobs, or else
// the experiment's.
struct Algorithms {
  std::vector<std::string> controls;    // by host, as a sender
  std::vector<uint32_t> weights;        // by host, as a sender
  std::vector<std::string> allocators;  // by host, as a receiver; empty: that of its own control
};

// A host that receives under several algorithms has the allocator of those that take grants; the
// others are granted the line rate. Errors: kInvalidArgument if the jobs of a host need two
// different ones, or for an unknown algorithm.
Result<Algorithms> algorithms_of(const RunSpec& spec);

// --- the parts of it ---

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

// Links as people name them: "leaf 0 > host 3".
std::string link_name(const Topology& topology, LinkId link);
// Errors: kInvalidArgument, for nodes that are not there or not neighbours.
Result<LinkId> find_link(const Topology& topology, std::string_view name);

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
Result<TransportSpec> read_transport(const SpecValue& value);
// `run` has topology, transport and workload.
Result<FabricConfig> read_fabric(const SpecValue& value, const RunSpec& run,
                                 const SpecContext& context);
// The bytes of a packet on the wire beyond its datagram: needed before the rest of [fabric].
Result<Bytes> read_overhead(const SpecValue& value);

}  // namespace pacecar
