#include "bench/ab/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>

#include "bench/ab/plan_parts.h"
#include "bench/perf/files.h"
#include "bench/sim/metrics.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "bench/sim/spec_value.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr uint64_t kMaxSeeds = 100'000;
constexpr const char* kDefaultShown[] = {"finish_us",    "fct_p50_us",      "fct_p99_us",
                                         "goodput_gbps", "queue_max_bytes", "retransmissions"};

// seeds = 5 means 1 .. 5; a list names them.
void read_seeds(SpecReader& reader, Experiment& experiment) {
  const SpecValue* seeds = reader.value("seeds");
  if (seeds != nullptr && seeds->list() != nullptr) {
    experiment.seeds = reader.wholes<uint64_t>("seeds", std::numeric_limits<int64_t>::max());
    if (experiment.seeds.empty()) reader.complain("seeds", "is empty: name one at least");
    std::vector<uint64_t> sorted = experiment.seeds;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      reader.complain("seeds", "names one twice: every run needs its own");
    }
    return;
  }
  experiment.seeds.resize(reader.whole("seeds", 1, 1, kMaxSeeds));
  std::iota(experiment.seeds.begin(), experiment.seeds.end(), 1);
}

void read_shown(SpecReader& reader, Experiment& experiment) {
  experiment.shown = read_texts(reader, "metrics");
  if (!reader.has("metrics")) {
    experiment.shown.assign(std::begin(kDefaultShown), std::end(kDefaultShown));
  }
  for (const std::string& name : experiment.shown) {
    if (const auto metric = find_metric(name); !metric) {
      reader.complain("metrics", "is wrong: " + metric.error().message);
    }
  }
}

// A metric of one job ("finish_us@victim") is there where the workload has several.
bool has_metric(const RunSpec& spec, std::string_view name) {
  const size_t at = name.find('@');
  if (at == std::string_view::npos) return true;
  const auto& jobs = spec.workload.jobs;
  return jobs.size() > 1 &&
         std::ranges::find(jobs, name.substr(at + 1), &WorkloadJob::name) != jobs.end();
}

tl::unexpected<Error> no_such_job(const std::string& file, const std::string& metric,
                                  const RunSpec& spec) {
  std::vector<std::string_view> names;
  for (const WorkloadJob& job : spec.workload.jobs) names.push_back(job.name);
  return invalid(
      "{}: '{}' asks for one of several jobs, and {} has {}: name one of these in a workload of "
      "[[workload.job]], or leave out '@'",
      file, metric, spec.name, fmt::join(names, ", "));
}

// Each cell can run and has the metrics that are asked for.
Result<void> check_cells(const Plan& plan, const std::string& file) {
  const Experiment& experiment = plan.experiment;
  std::vector<std::string> missing = experiment.shown;
  RunSpec last;
  for (size_t cell = 0; cell < experiment.cells.size(); ++cell) {
    ASSIGN_OR_RETURN(auto spec, run_spec(plan, cell * experiment.seeds.size()));
    for (const Threshold& threshold : experiment.thresholds) {
      if (threshold.cell == cell && !has_metric(spec, threshold.metric)) {
        return no_such_job(file, threshold.metric, spec);
      }
    }
    std::erase_if(missing, [&](const std::string& name) { return has_metric(spec, name); });
    last = std::move(spec);
  }
  if (missing.empty()) return {};
  return no_such_job(file, missing.front(), last);
}

}  // namespace

Result<Plan> parse_plan(std::string_view text, const std::string& name) {
  ASSIGN_OR_RETURN(const auto file, parse_spec(text, name));
  Plan plan{.experiment = {}, .specs = {}, .base_dir = {}, .text = std::string(text)};
  SpecReader top(*file.table(), "top level", file.place);
  plan.experiment.name = top.text("name", std::filesystem::path(name).stem());
  plan.experiment.description = top.text("description", "");
  read_seeds(top, plan.experiment);
  read_shown(top, plan.experiment);
  SpecTable common;
  for (const std::string_view run_table : kRunTables) {
    if (const SpecValue* value = top.value(run_table)) common.set(std::string(run_table), *value);
  }
  ASSIGN_OR_RETURN(const auto layers, read_parts(file, top, plan.experiment));
  for (const Cell& cell : plan.experiment.cells) {
    SpecTable& spec = plan.specs.emplace_back(common);
    for (const SpecTable* keys : layers.of(cell)) merge_spec(spec, *keys);
  }
  return plan;
}

Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed) {
  ASSIGN_OR_RETURN(const auto text, perf::read_text(path));
  ASSIGN_OR_RETURN(auto plan, parse_plan(text, path));
  plan.base_dir = std::filesystem::path(path).parent_path();
  if (seed) plan.experiment.seeds = {*seed};
  RETURN_IF_ERROR(check_cells(plan, path));
  return plan;
}

Result<RunSpec> run_spec(const Plan& plan, size_t run) {
  const Experiment& experiment = plan.experiment;
  const size_t cell = run / experiment.seeds.size();
  auto spec = make_run_spec(plan.specs[cell], plan.base_dir, experiment.seed_of(run));
  if (spec && (!spec->trace.empty() || !spec->pcap.empty())) {
    return invalid(
        "{}: [run] trace and pcap name one file, which all runs would write: leave them out, and "
        "trace one run with 'pacecar sim'",
        plan.specs[cell].find("run")->place.text());
  }
  if (spec) {
    spec->name = fmt::format("{}: {}, seed {}", experiment.name,
                             cell_text(experiment, experiment.cells[cell]), spec->seed);
  }
  return spec;
}

}  // namespace pacecar::ab
