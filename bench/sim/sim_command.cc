// `pacecar sim`: one run in a simulated fabric, from a TOML file or from flags alone.
#include <fmt/core.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/sim/metrics.h"
#include "bench/sim/result_json.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/summary.h"
#include "bench/workload/workload_spec.h"
#include "cc/registry.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

using cli::Console;

constexpr const char* kFooter = R"(Examples:
  pacecar sim incast.toml
  pacecar sim incast.toml --set workload.senders=64 --set fabric.trimming=true --seed 7
  pacecar sim --topology leaf-spine:hosts=128,rate=400G --workload incast:senders=32,bytes=1MB
  pacecar sim --topology net.topo --workload matrix.cm --cc fixed --json
  pacecar sim --list
bench/sim/README.md lists the tables and keys of a file.
Exit codes: 0 all flows are done, 2 it could not run, or its result could not be written, 3 flows
were not done at the time limit, or when it was interrupted (a warning names them).)";

constexpr int kExitNotDone = 3;

struct Flags {
  std::string file;
  std::string topology;
  std::string workload;
  std::map<std::string, std::string> texts;  // of flags that set one key, by that key
  std::vector<std::string> settings;
  std::optional<uint64_t> seed;
  std::string json_file;
  bool list = false;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("FILE", flags.file, "TOML file of the experiment; the flags below override it");
  app.add_option("--topology", flags.topology, "KIND:KEY=VALUE,... or a .topo file");
  app.add_option("--workload", flags.workload, "KIND:KEY=VALUE,... or a .cm file");
  app.add_option("--cc", flags.texts["transport.cc"], "congestion control");
  app.add_option("--set", flags.settings, "TABLE.KEY=VALUE, as in the file; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--seed", flags.seed, "seed of everything random")
      ->check(cli::whole_number(0, INT64_MAX));
  cli::add_json_flag(app, flags.json_file, "write the whole result");
  app.add_option("--trace", flags.texts["run.trace"],
                 "write the events of all flows, one JSON line each");
  app.add_option("--pcap", flags.texts["run.pcap"],
                 "write the packets of the link --pcap-link; open it with tshark");
  app.add_option("--pcap-link", flags.texts["run.pcap_link"],
                 "the link, such as 'leaf 0 > host 3'");
  app.add_flag("--list", flags.list, "list topologies, workloads, algorithms and metrics");
  app.footer(kFooter);
}

void print_row(std::string_view name, std::string_view what) {
  fmt::print("  {:<24}{}\n", name, what);
}

void print_list() {
  fmt::print("Topologies (--topology, [topology] kind)\n");
  for (const TopologyKind& kind : topology_kinds()) print_row(kind.name, kind.summary);
  fmt::print("\nWorkloads (--workload, [workload] kind)\n");
  for (const WorkloadKind& kind : workload_kinds()) {
    print_row(kind.name, kind.summary);
    print_row("", fmt::format("  {}", kind.keys));
  }
  fmt::print("\nCongestion controls (--cc, [transport] cc)\n");
  for (const ControllerInfo& info : controllers()) {
    print_row(info.name, info.summary);
    for (const ConstantInfo& constant : info.constants()) {
      print_row(fmt::format("  {}", constant.name),
                fmt::format("{}{}{}: {}", constant.value, constant.unit == "1" ? "" : " ",
                            constant.unit == "1" ? "" : constant.unit, constant.meaning));
    }
  }
  fmt::print("\nAllocators ([transport] allocator)\n");
  for (const AllocatorInfo& info : allocators()) print_row(info.name, info.summary);
  fmt::print("\nMetrics (of one job's flows: NAME@JOB)\n");
  for (const Metric& metric : metrics()) print_row(metric.name, metric.doc);
}

// Replaces a table of the file by one in short form.
Result<void> put_short_form(SpecTable& spec, const std::string& name, const std::string& text) {
  if (text.empty()) return {};
  ASSIGN_OR_RETURN(auto table, table_from_short_form(text));
  SpecValue* const file = table.find("file");
  if (file != nullptr && file->string() != nullptr) {  // relative to the working directory
    file->value = std::filesystem::absolute(std::get<std::string>(file->value)).string();
  }
  spec.set(name, SpecValue{.value = std::move(table), .place = {}});
  return {};
}

Result<RunSpec> spec_of(const Flags& flags) {
  SpecTable spec;
  if (!flags.file.empty()) {
    ASSIGN_OR_RETURN(auto file, read_spec(flags.file));
    spec = std::move(*file.table());
    if (const SpecValue* arm = spec.find("arm")) {
      return invalid("{}: an arm belongs to a plan: run it with 'pacecar ab {}'", arm->place.text(),
                     flags.file);
    }
  }
  RETURN_IF_ERROR(put_short_form(spec, "topology", flags.topology));
  RETURN_IF_ERROR(put_short_form(spec, "workload", flags.workload));
  for (const auto& [key, text] : flags.texts) {
    if (text.empty()) continue;
    RETURN_IF_ERROR(set_spec(spec, key, SpecValue{.value = text, .place = {}}));
  }
  RETURN_IF_ERROR(set_specs(spec, flags.settings));
  return make_run_spec(spec, std::filesystem::path(flags.file).parent_path().string(), flags.seed);
}

Result<RunResult> run_with_progress(const RunSpec& spec, const Console& console) {
  cli::ProgressBar bar(console.interactive());
  const Instant started = cli::steady_now();
  return run_experiment(spec, [&](const RunProgress& progress) {
    const Duration elapsed = cli::steady_now() - started;
    if (bar.due(elapsed)) {
      const double rate = static_cast<double>(progress.events) * 1e-6 / elapsed.seconds();
      bar.draw(progress.done,
               progress.building
                   ? "making hosts"
                   : fmt::format("{:.1f} us, {:.2f} M events/s", progress.virtual_time.us(), rate),
               elapsed);
    }
    return !cli::Interrupt::asked();
  });
}

Result<int> simulate(const Flags& flags, const Console& console) {
  RETURN_IF_ERROR(cli::check_writable(flags.json_file));
  ASSIGN_OR_RETURN(const auto spec, spec_of(flags));
  const cli::Interrupt interrupt;
  ASSIGN_OR_RETURN(const auto result, run_with_progress(spec, console));
  if (cli::Interrupt::asked()) console.note("interrupted: this is what happened until then");
  for (const std::string& warning : warnings(spec, result)) console.warn(warning);
  if (!flags.json_file.empty()) {
    RETURN_IF_ERROR(cli::write_json(flags.json_file, to_json(result)));
  }
  if (flags.json_file != cli::kStandardOutput && !console.quiet())
    fmt::print("{}{}", fabric_text(spec), summary(result));
  return result.complete || spec.endless ? int{cli::kExitOk} : kExitNotDone;
}

}  // namespace

int run_sim(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Runs one experiment in a simulated fabric: the production transport on virtual time.",
      "pacecar sim");
  add_flags(app, flags);
  const auto run = [&](const Console& console) -> Result<int> {
    if (!flags.list) return simulate(flags, console);
    print_list();
    return cli::kExitOk;
  };
  return cli::run_subcommand(app, argc, argv,
                             {.exit_code = [](const Error&) { return cli::kExitUsage; }}, run);
}

}  // namespace pacecar
