// [run] and [[fault]]: time limit, sampling, files; injected faults.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "bench/sim/link_names.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

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
    return reader.whole<uint32_t>("cable", 0, 0, topology.cables.size() - 1);
  }
  const auto link = find_link(topology, *value->string());
  if (link) return *link / 2;
  reader.complain("cable", fmt::format("is {}: {}", to_text(*value), link.error().message));
  return 0;
}

// A host's fault applies to all its processes, unless it names one.
std::vector<FaultEvent> of_processes(SpecReader& reader, const FaultEvent& fault,
                                     const Topology& topology) {
  const auto host = reader.whole<uint32_t>("host", 0, 0, topology.hosts - 1);
  const bool all = !reader.has("process");
  const auto one = reader.whole<uint32_t>("process", 0, 0, topology.processes - 1);
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
  SpecReader reader(value, "[[fault]]");
  FaultEvent fault;
  fault.at = reader.duration("at", Duration());
  if (!reader.has("kind")) {
    reader.complain("kind",
                    fmt::format("is missing: it takes one of {}", fmt::join(kFaultKinds, ", ")));
  }
  fault.kind = reader.choice("kind", fault.kind, kFaultKinds);
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

}  // namespace

std::string path_in(const std::string& base_dir, const std::string& name) {
  return (std::filesystem::path(base_dir) / name).string();
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
  SpecReader reader(value, "[run]");
  spec.name = reader.text("name", spec.name);
  reader.whole("seed", 1, 0, UINT64_MAX);  // used before anything else
  spec.time_limit = reader.duration("time_limit", spec.time_limit);
  spec.endless = reader.flag("endless", spec.endless);
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

}  // namespace pacecar
