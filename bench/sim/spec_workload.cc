// [workload]: kind and the keys of that kind, file = "x.cm", or a list of [[workload.job]].
#include <fmt/format.h>

#include <numeric>
#include <tuple>

#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "bench/workload/workload_spec.h"
#include "cc/registry.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

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
      {"senders", &WorkloadSpec::senders, 1},
      {"receivers", &WorkloadSpec::receivers, 1},
      {"hosts_per_leaf", &WorkloadSpec::hosts_per_leaf, 1},
      {"hosts_per_server", &WorkloadSpec::hosts_per_server, 1},
      {"parallel", &WorkloadSpec::parallel, 0},
      {"pieces", &WorkloadSpec::pieces, 1},
      {"microbatches", &WorkloadSpec::microbatches, 1}};
  for (const auto& [key, count, least] : kCounts) {
    if (takes(key)) spec.*count = reader.whole<uint32_t>(key, spec.*count, least);
  }
  if (takes("stagger")) spec.stagger = reader.duration("stagger", spec.stagger);
  if (takes("sizes")) spec.sizes = read_sizes(reader, context, spec.sizes);
  if (takes("load")) spec.load = reader.number("load", spec.load, 0.001, 1.0);
  if (takes("rate")) spec.rate = reader.rate("rate", context.line_rate);
  if (takes("length")) spec.length = reader.duration("length", spec.length);
  if (takes("compute")) spec.compute = reader.duration("compute", spec.compute);
}

Result<WorkloadSpec> read_spec(const SpecValue& value, const SpecContext& context) {
  SpecReader reader(value, "[workload]");
  WorkloadSpec spec;
  spec.name = reader.text("name", "");
  spec.congestion_control = read_congestion_control(reader, "");
  spec.weight = reader.whole<uint32_t>("weight", 1, 1, kMaxWeight);
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
      spec.operations = reader.whole<uint32_t>("operations", 1, 1, 1'000'000);
      spec.pause = reader.duration("pause", Duration());
      spec.slice = reader.bytes("slice", 0);
    }
    read_keys(reader, kind, context, spec);
    // A complaint about an earlier key stands.
    if (kind.make == nullptr) reader.add_error(read_jobs(reader, *value.table(), context, spec));
  }
  RETURN_IF_ERROR(reader.finish());
  return spec;
}

}  // namespace

Result<Workload> read_workload(const SpecValue& value, const SpecContext& context) {
  ASSIGN_OR_RETURN(const auto spec, read_spec(value, context));
  auto workload =
      make_workload(spec, context.topology->hosts, context.seed, context.topology->processes);
  if (workload) return workload;
  return fail(workload.error().code,
              fmt::format("{}: [workload]: {}", value.place.text(), workload.error().message));
}

}  // namespace pacecar
