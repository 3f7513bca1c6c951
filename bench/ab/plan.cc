#include "bench/ab/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>

#include "bench/ab/plan_cells.h"
#include "bench/sim/metrics.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr uint64_t kMaxSeeds = 100'000;
constexpr size_t kMaxRuns = 1'000'000;
constexpr const char* kDefaultShown[] = {"finish_us",    "fct_p50_us",      "fct_p99_us",
                                         "goodput_gbps", "queue_max_bytes", "retransmissions"};

// An arm or a factor value: its name, and what it puts on top.
struct Layer {
  std::string name;
  SpecTable keys;
};

std::string settings_text(const SpecTable& keys) {
  std::vector<std::string> texts;
  for (const auto& [table, value] : keys.entries()) {
    if (value.table() == nullptr) {
      texts.push_back(fmt::format("{} = {}", table, to_text(value)));
      continue;
    }
    for (const auto& [key, inner] : value.table()->entries()) {
      texts.push_back(fmt::format("{}.{} = {}", table, key, to_text(inner)));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// The table without its `name`; the rest belongs to the tables of a run.
Result<Layer> read_layer(const SpecValue& value, const std::string& what) {
  SpecTable table = *value.table();
  SpecReader reader(table, what, value.place);
  Layer layer{reader.text("name", ""), {}};
  if (layer.name.empty()) reader.complain("name", "is missing: every one needs its own");
  for (const std::string_view run_table : kRunTables) reader.value(run_table);
  RETURN_IF_ERROR(reader.finish());
  table.erase("name");
  layer.keys = std::move(table);
  return layer;
}

// [[factor]] key = "transport.paths", values = [1, 64]: one key that takes each value.
Result<std::vector<Layer>> short_values(SpecReader& reader, const SpecPlace& place) {
  std::vector<Layer> layers;
  const std::string key = reader.text("key", "");
  const SpecValue* values = reader.value("values");
  if (key.empty() || values == nullptr || values->list() == nullptr) {
    reader.complain("values",
                    "is missing: write key = \"TABLE.KEY\" and values = [..], or each "
                    "value under [[factor.value]]");
    return layers;
  }
  for (const SpecValue& value : *values->list()) {
    Layer layer{plain_text(value), {}};
    if (auto set = set_spec(layer.keys, key, value); !set) {
      return fail(set.error().code, fmt::format("{}: {}", place.text(), set.error().message));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

// Reads the values of one [[factor]], and appends the factor.
Result<std::vector<Layer>> read_factor(const SpecValue& value, Experiment& experiment) {
  SpecReader reader(*value.table(), "[[factor]]", value.place);
  Factor factor{reader.text("name", ""), {}};
  if (factor.name.empty() || factor.name == "arm" || factor.name == "seed") {
    reader.complain("name", "is missing, 'arm' or 'seed': every factor needs a name of its own");
  }
  std::vector<Layer> layers;
  if (reader.has("value")) {
    ASSIGN_OR_RETURN(const auto tables, tables_of(*value.table(), "value"));
    for (const SpecValue* table : tables) {
      ASSIGN_OR_RETURN(auto layer, read_layer(*table, "[[factor.value]]"));
      layers.push_back(std::move(layer));
    }
    if (reader.has("key") || reader.has("values")) {
      reader.complain("key", "and values are another way to write [[factor.value]]: use one");
    }
  } else {
    ASSIGN_OR_RETURN(layers, short_values(reader, value.place));
  }
  if (layers.empty()) reader.complain("values", "is empty: name one at least");
  RETURN_IF_ERROR(reader.finish());
  for (const Layer& layer : layers) factor.values.push_back(layer.name);
  if (auto unique =
          check_names(factor.values, "values of factor '" + factor.name + "'", value.place);
      !unique) {
    return tl::unexpected(unique.error());
  }
  experiment.factors.push_back(std::move(factor));
  return layers;
}

// seeds = 5 means 1 .. 5; a list names them.
void read_seeds(SpecReader& reader, Experiment& experiment) {
  const SpecValue* seeds = reader.value("seeds");
  if (seeds != nullptr && seeds->list() != nullptr) {
    experiment.seeds = reader.wholes("seeds", std::numeric_limits<int64_t>::max());
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
  const SpecValue* shown = reader.value("metrics");
  if (shown == nullptr) {
    experiment.shown.assign(std::begin(kDefaultShown), std::end(kDefaultShown));
    return;
  }
  if (shown->list() == nullptr) {
    reader.complain("metrics", "takes a list such as [\"finish_us\", \"queue_max_bytes\"]");
    return;
  }
  for (const SpecValue& name : *shown->list()) {
    experiment.shown.push_back(plain_text(name));
    if (auto metric = find_metric(experiment.shown.back()); !metric) {
      reader.complain("metrics", "is wrong: " + metric.error().message);
    }
  }
}

// The keys of the plan itself, but for arms, factors and thresholds.
Result<void> read_head(const SpecTable& table, const SpecPlace& place, const std::string& name,
                       Experiment& experiment) {
  SpecReader reader(table, "top level", place);
  experiment.name = reader.text("name", name);
  experiment.description = reader.text("description", "");
  read_seeds(reader, experiment);
  read_shown(reader, experiment);
  std::vector<std::string_view> arms;
  for (const Arm& arm : experiment.arms) arms.push_back(arm.name);
  experiment.baseline = reader.choice("baseline", 0, arms);
  for (const std::string_view key : {"arm", "factor", "threshold", "skip", "only"}) {
    reader.value(key);
  }
  for (const std::string_view run_table : kRunTables) reader.value(run_table);
  return reader.finish();
}

struct Layers {
  SpecTable base;
  std::vector<Layer> arms;
  std::vector<std::vector<Layer>> factors;
};

Result<Layers> read_layers(const SpecValue& file, Experiment& experiment) {
  const SpecTable& table = *file.table();
  Layers layers;
  for (const std::string_view run_table : kRunTables) {
    if (const SpecValue* value = table.find(run_table)) {
      layers.base.set(std::string(run_table), *value);
    }
  }
  const auto arms = tables_of(table, "arm");
  if (!arms) return tl::unexpected(arms.error());
  std::vector<std::string> names;
  for (const SpecValue* arm : *arms) {
    ASSIGN_OR_RETURN(auto layer, read_layer(*arm, "[[arm]]"));
    experiment.arms.push_back({layer.name, settings_text(layer.keys)});
    names.push_back(layer.name);
    layers.arms.push_back(std::move(layer));
  }
  if (names.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the plan has no arm: write [[arm]] with name = \"...\" and what "
                            "sets it apart",
                            file.place.text()));
  }
  RETURN_IF_ERROR(check_names(names, "arms", file.place));
  const auto factors = tables_of(table, "factor");
  if (!factors) return tl::unexpected(factors.error());
  for (const SpecValue* factor : *factors) {
    ASSIGN_OR_RETURN(auto values, read_factor(*factor, experiment));
    layers.factors.push_back(std::move(values));
  }
  names.clear();
  for (const Factor& factor : experiment.factors) names.push_back(factor.name);
  RETURN_IF_ERROR(check_names(names, "factors", file.place));
  return layers;
}

SpecTable cell_spec(const Layers& layers, const Cell& cell) {
  SpecTable spec = layers.base;
  for (size_t i = 0; i < cell.values.size(); ++i) {
    merge_spec(spec, layers.factors[i][cell.values[i]].keys);
  }
  merge_spec(spec, layers.arms[cell.arm].keys);
  return spec;
}

Result<Plan> make_plan(const SpecValue& file, const std::string& name) {
  Plan plan;
  Experiment& experiment = plan.experiment;
  const SpecTable& table = *file.table();
  ASSIGN_OR_RETURN(const auto layers, read_layers(file, experiment));
  RETURN_IF_ERROR(read_head(table, file.place, name, experiment));
  RETURN_IF_ERROR(choose_cells(table, experiment));
  if (experiment.cells.empty() || experiment.runs() > kMaxRuns) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the plan has {} runs, and should have 1 to {}: look at [[skip]], "
                            "[[only]], factors and seeds",
                            file.place.text(), experiment.runs(), kMaxRuns));
  }
  ASSIGN_OR_RETURN(const auto thresholds, tables_of(table, "threshold"));
  for (const SpecValue* threshold : thresholds) {
    RETURN_IF_ERROR(read_threshold(*threshold, experiment));
  }
  for (const Cell& cell : experiment.cells) plan.specs.push_back(cell_spec(layers, cell));
  return plan;
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
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: '{}' asks for one of several jobs, and {} has {}: name one of these "
                          "in a workload of [[workload.job]], or leave out '@'",
                          file, metric, spec.name, fmt::join(names, ", ")));
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
  auto plan = make_plan(file, std::filesystem::path(name).stem());
  if (plan) plan->text = text;
  return plan;
}

Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed) {
  ASSIGN_OR_RETURN(const auto file, read_spec(path));
  auto plan = make_plan(file, std::filesystem::path(path).stem());
  if (!plan) return plan;
  std::ifstream stream(path);
  plan->text.assign(std::istreambuf_iterator<char>(stream), {});
  plan->base_dir = std::filesystem::path(path).parent_path();
  Experiment& experiment = plan->experiment;
  if (seed) experiment.seeds = {*seed};
  RETURN_IF_ERROR(check_cells(*plan, path));
  return plan;
}

Result<RunSpec> run_spec(const Plan& plan, size_t run) {
  const Experiment& experiment = plan.experiment;
  const size_t cell = run / experiment.seeds.size();
  auto spec = make_run_spec(plan.specs[cell], plan.base_dir, experiment.seed_of(run));
  if (spec && (!spec->trace.empty() || !spec->pcap.empty())) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: [run] trace and pcap name one file, which all runs would write: "
                            "leave them out, and trace one run with 'pacecar sim'",
                            plan.specs[cell].find("run")->place.text()));
  }
  if (spec) {
    spec->name = fmt::format("{}: {}, seed {}", experiment.name,
                             cell_text(experiment, experiment.cells[cell]), spec->seed);
  }
  return spec;
}

}  // namespace pacecar::ab
