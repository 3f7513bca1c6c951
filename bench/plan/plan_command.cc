// `pacecar plan`: how to divide the training of a model among unequal accelerators.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/subcommands.h"
#include "bench/plan/launch.h"
#include "bench/plan/model.h"
#include "bench/plan/plan_report.h"
#include "bench/plan/search.h"
#include "bench/predict/description.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

using namespace plan;
using cli::Console;

// The input of `pacecar plan`, from TOML tables: model, training, accelerators, and the network in
// the format of `pacecar predict`. README.md lists the keys.

constexpr uint32_t kMost = 1'000'000;
constexpr std::array<std::string_view, 3> kOwnTables{"model", "training", "accelerators"};

Result<const SpecValue*> table_of(const SpecTable& tables, std::string_view name,
                                  std::string_view cure) {
  const SpecValue* found = tables.find(name);
  if (found == nullptr || found->table() == nullptr) {
    return invalid("there is no table [{}]: {}", name, cure);
  }
  return found;
}

uint32_t count(SpecReader& reader, std::string_view key, uint32_t otherwise, uint32_t min = 1) {
  return reader.whole<uint32_t>(key, otherwise, min, kMost);
}

// A preset, a preset with some figures replaced, or all figures.
Result<void> read_model(const SpecTable& tables, Model& model) {
  ASSIGN_OR_RETURN(
      const auto value,
      table_of(tables, "model", "name one, such as model.preset = \"llama2-70b\", or describe it"));
  SpecReader reader(*value, "[model]");
  const bool known = reader.has("preset");
  if (known) {
    model = presets()[reader.choice("preset", size_t{0}, names_of(presets()))];
  }
  model.name = reader.text("name", known ? model.name : "model");
  constexpr std::pair<const char*, uint32_t Model::*> kFigures[] = {
      {"layers", &Model::layers},
      {"hidden", &Model::hidden},
      {"heads", &Model::heads},
      {"vocabulary", &Model::vocabulary},
      {"sequence", &Model::sequence}};
  for (const auto& [key, figure] : kFigures) {
    model.*figure = count(reader, key, model.*figure, known ? 1 : 0);
    if (model.*figure == 0) reader.complain(key, "is missing: give it, or a preset");
  }
  model.kv_heads = count(reader, "kv_heads", known ? model.kv_heads : model.heads, 0);
  model.ffn = count(reader, "ffn", known ? model.ffn : 4 * model.hidden, 0);
  model.gated = reader.flag("gated", model.gated);
  model.gpt = reader.flag("gpt", model.gpt);
  model.experts = count(reader, "experts", model.experts);
  model.top_k = count(reader, "top_k", model.top_k);
  if (reader.failed()) return reader.finish();
  if (model.hidden % model.heads != 0)
    reader.complain("heads", "do not divide hidden: each has an equal part of it");
  if (model.kv_heads == 0 || model.heads % model.kv_heads != 0)
    reader.complain("kv_heads", "do not divide heads: each serves as many of them");
  if (model.top_k > model.experts)
    reader.complain("top_k", "is more than experts: a token goes to some of them");
  if (model.ffn == 0) reader.complain("ffn", "is 0: give the width of the feed-forward layer");
  return reader.finish();
}

std::vector<uint32_t> numbers(SpecReader& reader, std::string_view key,
                              std::vector<uint32_t> otherwise) {
  if (!reader.has(key)) return otherwise;
  std::vector<uint32_t> found = reader.wholes(key, kMost);
  std::ranges::sort(found);
  if (!found.empty() && found[0] == 0) {
    reader.complain(key, "has a 0: it takes whole numbers from 1");
  }
  if (found.empty()) reader.complain(key, "is empty: list what may be tried");
  if (std::ranges::adjacent_find(found) != found.end())
    reader.complain(key, "lists a number twice: leave one out");
  return found;
}

Result<void> read_training(const SpecTable& tables, Training& training) {
  constexpr std::array<std::string_view, 2> kPrecisions{"bf16", "fp32"};
  constexpr std::array<std::string_view, 3> kRecompute{"any", "none", "full"};
  ASSIGN_OR_RETURN(const auto value,
                   table_of(tables, "training", "give at least training.global_batch = 1024"));
  SpecReader reader(*value, "[training]");
  if (!reader.has("global_batch"))
    reader.complain("global_batch", "is missing: give the samples of a step");
  training.global_batch = count(reader, "global_batch", training.global_batch);
  training.micro_batches = numbers(reader, "micro_batches", training.micro_batches);
  training.tensor = numbers(reader, "tensor", training.tensor);
  training.experts = numbers(reader, "experts", training.experts);
  const size_t recompute = reader.choice("recompute", 0, kRecompute);
  if (recompute > 0) training.recompute = {static_cast<Recompute>(recompute - 1)};
  training.most_stages = count(reader, "most_stages", training.most_stages);
  training.equal_tensor = reader.flag("equal_tensor", training.equal_tensor);
  training.shard_optimizer = reader.flag("shard_optimizer", training.shard_optimizer);
  training.overlap = reader.number("overlap", training.overlap, 0, 1);
  training.usable_memory = reader.number("usable_memory", training.usable_memory, 0.01, 1);
  if (reader.choice("precision", 0, kPrecisions) == 1) training.precision = kFp32;
  return reader.finish();
}

// accelerators[].samples: measured forward passes of one layer.
Result<std::vector<Sample>> read_samples(const SpecValue& list, const Model& model) {
  std::vector<Sample> samples;
  if (list.list() == nullptr) {
    return invalid(
        "{}: samples is no list: write "
        "samples = [{{micro_batch = 1, tensor = 1, forward = \"12ms\"}}]",
        list.place.text());
  }
  for (const SpecValue& each : *list.list()) {
    if (each.table() == nullptr) {
      return invalid(
          "{}: a sample is {}: write {{micro_batch = 1, tensor = 1, forward = \"12ms\"}}",
          each.place.text(), kind_of(each));
    }
    SpecReader reader(each, "a sample");
    const double tokens = double{1} * count(reader, "micro_batch", 1) * model.sequence;
    const double flops = layer_flops(model) * tokens / count(reader, "tensor", 1);
    const double seconds = reader.duration("forward", Duration()).seconds();
    if (!(seconds > 0)) reader.complain("forward", "is missing or 0: give a layer's forward pass");
    RETURN_IF_ERROR(reader.finish());
    samples.push_back({flops, seconds});
  }
  return samples;
}

Result<Accelerator> read_accelerator(const SpecValue& value, const Model& model) {
  SpecReader reader(value, "[[accelerators]]");
  Accelerator found;
  found.name = reader.text("name", "accelerator");
  found.hosts = count(reader, "hosts", 1);
  if (!reader.has("tflops"))
    reader.complain("tflops", "is missing: give the peak, as tflops = 312");
  found.flops = reader.number("tflops", 1, 1e-3, 1e6) * 1e12;
  found.efficiency = reader.number("efficiency", found.efficiency, 0.01, 1);
  found.overhead_s = reader.duration("overhead", Duration()).seconds();
  found.memory = static_cast<double>(reader.bytes("memory", Bytes{80'000'000'000}));
  found.memory_rate = static_cast<double>(reader.bytes("memory_rate", Bytes{2'000'000'000'000}));
  if (found.memory_rate <= 0) reader.complain("memory_rate", "is 0: give bytes per second");
  reader.table("host");
  const SpecValue* samples = reader.value("samples");
  RETURN_IF_ERROR(reader.finish());
  if (samples == nullptr) return found;
  ASSIGN_OR_RETURN(const auto measured, read_samples(*samples, model));
  if (measured.empty() || !calibrate(found, measured)) {
    return invalid(
        "{}: samples of '{}' fit no roofline (none, faster than its peak, or "
        "slower for less): check tflops and the times",
        samples->place.text(), found.name);
  }
  return found;
}

// Adds the hosts of this kind, with their network, to the cluster.
Result<void> add_hosts(const SpecTable& network, const SpecValue& value, Accelerator& accelerator,
                       Problem& problem) {
  SpecTable tables = network;
  RETURN_IF_ERROR(set_spec(tables, "topology.hosts",
                           SpecValue{.value = int64_t{accelerator.hosts}, .place = value.place}));
  if (const SpecValue* host = value.table()->find("host")) {
    SpecTable own;
    own.set("host", *host);
    merge_spec(tables, own);
  }
  ASSIGN_OR_RETURN(auto described, predict::read_description(tables));
  predict::Cluster& cluster = problem.cluster;
  predict::HostGroup group = described.cluster.groups.at(0);
  for (uint32_t& nic : group.nics) nic += static_cast<uint32_t>(cluster.nic_kinds.size());
  cluster.nic_kinds.insert(cluster.nic_kinds.end(), described.cluster.nic_kinds.begin(),
                           described.cluster.nic_kinds.end());
  cluster.fabric = described.cluster.fabric;
  cluster.background = described.cluster.background;
  problem.overheads = described.overheads;
  accelerator.per_host = group.gpus;
  cluster.groups.push_back(std::move(group));
  return {};
}

Result<void> read_accelerators(const SpecTable& tables, Problem& problem) {
  constexpr size_t kMostKinds = 3;
  const SpecValue* listed = tables.find("accelerators");
  const SpecList* kinds = listed == nullptr ? nullptr : listed->list();
  if (kinds == nullptr || kinds->empty() || kinds->size() > kMostKinds) {
    return invalid(
        "there are no accelerators, or more than {} kinds: describe each as [[accelerators]]",
        kMostKinds);
  }
  SpecTable network = tables;
  for (const std::string_view own : kOwnTables) network.erase(own);
  problem.cluster.nic_kinds.clear();
  problem.cluster.groups.clear();
  for (const SpecValue& kind : *kinds) {
    if (kind.table() == nullptr) {
      return invalid("{}: accelerators lists {}: describe each as [[accelerators]]",
                     kind.place.text(), kind_of(kind));
    }
    ASSIGN_OR_RETURN(auto accelerator, read_accelerator(kind, problem.model));
    RETURN_IF_ERROR(add_hosts(network, kind, accelerator, problem));
    problem.accelerators.push_back(std::move(accelerator));
  }
  return {};
}

constexpr const char* kFooter = R"(Examples:
  pacecar plan bench/plan/examples/hethub.toml
  pacecar plan cluster.toml model.toml --set training.global_batch=512 --json plans.json
  pacecar plan job.toml --megatron
bench/plan/README.md lists the tables and keys of a file, and what is measured or assumed.
Exit codes: 0 success, 1 no plan fits the memory or the batch, 2 wrong usage.)";

struct Flags {
  std::vector<std::string> files;
  std::vector<std::string> settings;
  SearchOptions search{.tolerance = 0.1};  // percent
  std::string json_file;
  bool megatron = false;
  uint32_t plan = 1;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("FILES", flags.files,
                 "TOML of model, training and cluster; later files override earlier ones");
  app.add_option("--set", flags.settings, "set any key of the file, as training.global_batch=512")
      ->allow_extra_args(false);
  app.add_option("--best", flags.search.best, "number of plans to print")
      ->check(cli::whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--tolerance", flags.search.tolerance,
                 "percent by which a plan may be above the optimum; 0: search until no plan is "
                 "better")
      ->check(CLI::Range(0.0, 50.0))
      ->capture_default_str();
  app.add_option("--nodes", flags.search.nodes,
                 "partial splits to search per shape; more bring the plan, or its bound, nearer to "
                 "the optimum")
      ->check(cli::whole_number(1, 1'000'000'000))
      ->capture_default_str();
  cli::add_json_flag(app, flags.json_file, "write all figures of the plans");
  app.add_flag("--megatron", flags.megatron, "print how to launch a plan with Megatron-LM");
  app.add_option("--plan", flags.plan, "number of the plan that --megatron prints")
      ->check(cli::whole_number(1, 1000))
      ->capture_default_str();
  app.footer(kFooter);
}

// Errors: kInvalidArgument, with file, line, cause and cure.
Result<Problem> problem_of(const Flags& flags) {
  ASSIGN_OR_RETURN(auto tables, read_specs(flags.files));
  RETURN_IF_ERROR(set_specs(tables, flags.settings));
  if (tables.empty()) {
    return invalid(
        "nothing is to be planned: name a file, such as bench/plan/examples/hethub.toml");
  }
  Problem problem;
  RETURN_IF_ERROR(read_model(tables, problem.model));
  RETURN_IF_ERROR(read_training(tables, problem.training));
  RETURN_IF_ERROR(read_accelerators(tables, problem));
  return problem;
}

Error nothing_fits(const SearchResult& result) {
  return {ErrorCode::kUnavailable,
          result.memory_short
              ? "no plan fits the memory: add accelerators, allow more training.tensor, smaller "
                "training.micro_batches or training.recompute = \"full\""
              : "no plan divides the batch and the model: let micro_batches divide "
                "training.global_batch, and training.tensor the heads and a host's accelerators"};
}

Result<void> print(const Answer& answer, const Flags& flags, bool quiet) {
  if (!flags.json_file.empty()) {
    RETURN_IF_ERROR(cli::write_json(flags.json_file, document_of(answer)));
  }
  if (!flags.megatron) {
    const bool table = !quiet && flags.json_file != cli::kStandardOutput;
    if (table) fmt::print("{}", text_of(answer));
    return {};
  }
  if (flags.plan > answer.plans.size()) {
    return invalid("there is no plan {}: only {} were found", flags.plan, answer.plans.size());
  }
  fmt::print("{}", megatron_launch(answer.problem, answer.plans[flags.plan - 1].strategy));
  return {};
}

Result<void> plan_it(const Flags& flags, const Console& console) {
  if (flags.plan > flags.search.best) {
    return invalid("there is no plan {} among the best {}: raise --best", flags.plan,
                   flags.search.best);
  }
  RETURN_IF_ERROR(cli::check_writable(flags.json_file));
  ASSIGN_OR_RETURN(const auto problem, problem_of(flags));
  CommTimes comm(problem.cluster, problem.overheads);
  SearchOptions options = flags.search;
  options.tolerance /= 100;
  const Instant started = cli::steady_now();
  const auto elapsed = [&] { return cli::steady_now() - started; };
  std::optional<cli::ProgressBar> bar(console.interactive());
  const auto found = search(problem, comm, options, [&](size_t done, size_t all) {
    if (!bar->due(elapsed())) return;
    const double share = static_cast<double>(done) / static_cast<double>(all);
    bar->draw(share, fmt::format("{} of at most {} shapes", done, all), elapsed());
  });
  bar.reset();
  const double search_s = elapsed().seconds();
  if (found.best.empty()) return tl::unexpected(nothing_fits(found));
  std::vector<PlanReport> plans;
  for (const Strategy& each : found.best) plans.push_back(report_of(problem, each, comm));
  const bool several = problem.accelerators.size() > 1;
  return print({.problem = problem,
                .search = found,
                .plans = plans,
                .alone_tokens_per_s = several ? alone_tokens_per_s(problem, comm, options) : 0,
                .search_s = search_s},
               flags, console.quiet());
}

}  // namespace

int run_plan(int argc, char** argv) {
  Flags flags;
  CLI::App app("Plans how to divide the training of a model among unequal accelerators.",
               "pacecar plan");
  add_flags(app, flags);
  const auto exit_code = [](const Error& error) {
    return error.code == ErrorCode::kUnavailable ? cli::kExitFailed : cli::kExitUsage;
  };
  return cli::run_subcommand(app, argc, argv, {.exit_code = exit_code},
                             [&](const Console& console) { return plan_it(flags, console); });
}

}  // namespace pacecar
