// Makes a RunSpec of an experiment's TOML tables. README.md lists the tables, their keys, units and
// defaults; unknown, wrongly typed or impossible values are refused with one sentence that names
// file, line, cause and cure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace pacecar
