// predict_choices: compares the tuner's choices with the best, and with the choices of NCCL itself.
// For each random case the packet simulator runs every algorithm and protocol that could be the
// best. Prints a line of JSON for each case, then a summary.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/sim/run.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/tuner/tuner.h"
#include "tests/sim/choices/choice_case.h"
#include "tests/sim/choices/library_flows.h"

namespace pacecar::predict {
namespace {

using tuner::CostView;
using tuner::Pick;
using Json = nlohmann::json;
using Costs = std::array<float, nccl::kTunedAlgorithms * nccl::kTunedProtocols>;

constexpr std::array kFunctionNames{"broadcast", "reduce", "all-gather", "reduce-scatter",
                                    "all-reduce"};
constexpr std::array kOperations{Operation::kBroadcast, Operation::kReduce, Operation::kAllGather,
                                 Operation::kReduceScatter, Operation::kAllReduce};
constexpr std::array kProtocols{Protocol::kLl, Protocol::kLl128, Protocol::kSimple};

CostView view(Costs& costs) {
  return {costs.data(), nccl::kTunedAlgorithms, nccl::kTunedProtocols};
}

Costs costs_of_nccl(const ChoiceCase& drawn) {
  Costs costs;
  for (int i = 0; i < static_cast<int>(costs.size()); ++i) {
    costs[static_cast<size_t>(i)] = nccl_time_us(
        drawn.network, drawn.function, static_cast<nccl::TunedAlgorithm>(i / nccl::kTunedProtocols),
        static_cast<nccl::TunedProtocol>(i % nccl::kTunedProtocols), drawn.bytes);
  }
  return costs;
}

Costs costs_of_tuner(const ChoiceCase& drawn, std::span<const tuner::PossibleCluster> possible) {
  Costs costs = costs_of_nccl(drawn);
  tuner::Tuner(possible, drawn.assumed)
      .fill({.function = drawn.function, .bytes = drawn.bytes}, view(costs));
  return costs;
}

LibraryFlows flows_of(const ChoiceCase& drawn, size_t entry) {
  const auto algorithm = static_cast<nccl::TunedAlgorithm>(entry / nccl::kTunedProtocols);
  return {.hosts = drawn.network.hosts,
          .nics = drawn.network.nics,
          .operation = kOperations[static_cast<size_t>(drawn.function)],
          .algorithm = algorithm == nccl::TunedAlgorithm::kTree   ? Algorithm::kTree
                       : algorithm == nccl::TunedAlgorithm::kRing ? Algorithm::kRing
                                                                  : Algorithm::kPat,
          .bytes = drawn.bytes,
          .costs = drawn.real.of(kProtocols[entry % nccl::kTunedProtocols])};
}

double simulate_us(const ChoiceCase& drawn, size_t entry) {
  const LibraryFlows flows = flows_of(drawn, entry);
  RunSpec run = drawn.run;
  run.workload = library_workload(flows);
  const auto result = run_experiment(run);
  if (!result) throw std::runtime_error(result.error().message);
  if (!result->complete) throw std::runtime_error("the run did not end: " + drawn.name);
  double last_s = 0;
  for (const FlowResult& flow : result->flows) last_s = std::max(last_s, flow.received.seconds());
  return (flows.costs.launch_s + last_s) * 1e6;
}

size_t entry_of(const Pick& pick) {
  return static_cast<size_t>(pick.algorithm) * nccl::kTunedProtocols +
         static_cast<size_t>(pick.protocol);
}

std::string name_of_entry(size_t entry) {
  return fmt::format(
      "{} {}", tuner::name_of(static_cast<nccl::TunedAlgorithm>(entry / nccl::kTunedProtocols)),
      tuner::name_of(static_cast<nccl::TunedProtocol>(entry % nccl::kTunedProtocols)));
}

// The times of all entries that could be the best, or were picked; some may be in `earlier`.
Json run_case(uint64_t seed, const ChoiceLimits& limits, const Json& earlier) {
  const auto drawn = draw_choice(seed, limits);
  if (!drawn) throw std::runtime_error(drawn.error().message);
  Costs nccl = costs_of_nccl(*drawn);
  Costs known = costs_of_tuner(*drawn, drawn->known);
  Costs described = costs_of_tuner(*drawn, drawn->described);
  std::map<size_t, double> simulated;
  const auto time_of = [&](size_t entry) {
    const auto found = simulated.find(entry);
    if (found != simulated.end()) return found->second;
    const auto before = earlier.find(name_of_entry(entry));
    return simulated[entry] =
               before != earlier.end() ? before->get<double>() : simulate_us(*drawn, entry);
  };
  const std::array picks{*fastest(view(known)), *fastest(view(described)), *fastest(view(nccl))};
  double best_us = time_of(entry_of(picks[0]));
  for (const Pick& pick : picks) best_us = std::min(best_us, time_of(entry_of(pick)));
  for (size_t entry = 0; entry < nccl.size(); ++entry) {
    if (nccl[entry] == nccl::kRuledOut) continue;
    if (least_s(flows_of(*drawn, entry), bytes_per_s(drawn->network.gbps)) * 1e6 > best_us)
      continue;
    best_us = std::min(best_us, time_of(entry));
  }
  Json times = Json::object();
  Json predicted = Json::object();
  Json predicted_described = Json::object();
  for (const auto& [entry, time_us] : simulated) {
    times[name_of_entry(entry)] = time_us;
    predicted[name_of_entry(entry)] = known[entry];
    predicted_described[name_of_entry(entry)] = described[entry];
  }
  return {{"seed", seed},
          {"name", fmt::format("{}, {}", kFunctionNames[static_cast<size_t>(drawn->function)],
                               drawn->name)},
          {"fabric", drawn->fabric},
          {"operation", kFunctionNames[static_cast<size_t>(drawn->function)]},
          {"best_us", best_us},
          {"tuner_us", time_of(entry_of(picks[0]))},
          {"tuner_that_knows_the_network_us", time_of(entry_of(picks[1]))},
          {"nccl_us", time_of(entry_of(picks[2]))},
          {"tuner", name_of_entry(entry_of(picks[0]))},
          {"nccl", name_of_entry(entry_of(picks[2]))},
          {"times_us", times},
          {"predicted_us", predicted},
          {"predicted_by_the_tuner_that_knows_the_network_us", predicted_described}};
}

void print_summary(const std::vector<Json>& results) {
  std::map<std::string, std::vector<const Json*>> groups;
  for (const Json& result : results) {
    for (const Json& group : {Json("all"), result["fabric"], result["operation"]}) {
      groups[group].push_back(&result);
    }
  }
  fmt::print(
      "{:18} {:>5} | within 3% of the best: {:>6} {:>8} {:>6} | sum of times / NCCL's: "
      "{:>6} {:>8} {:>6}\n",
      "", "cases", "tuner", "network", "NCCL", "tuner", "network", "best");
  for (const auto& [name, cases] : groups) {
    const auto near = [&cases = cases](const char* key) {
      const auto is_near = [key](const Json* one) {
        return (*one)[key].get<double>() <= 1.03 * (*one)["best_us"].get<double>();
      };
      return 100.0 * static_cast<double>(std::ranges::count_if(cases, is_near)) /
             static_cast<double>(cases.size());
    };
    const auto sum_us = [&cases = cases](const char* key) {
      double sum = 0;
      for (const Json* one : cases) sum += (*one)[key].get<double>();
      return sum;
    };
    const double nccl_us = sum_us("nccl_us");
    fmt::print("{:18} {:5} | {:29.1f}% {:7.1f}% {:5.1f}% | {:30.3f} {:8.3f} {:6.3f}\n", name,
               cases.size(), near("tuner_us"), near("tuner_that_knows_the_network_us"),
               near("nccl_us"), sum_us("tuner_us") / nccl_us,
               sum_us("tuner_that_knows_the_network_us") / nccl_us, sum_us("best_us") / nccl_us);
  }
}

struct Budget {
  uint64_t first = 1;  // seed
  uint64_t cases = 500;
  uint32_t jobs = 1;     // at a time
  double seconds = 1e9;  // no case begins later
};

// By seed: the times in the lines that an earlier run with the same limits has printed.
using Earlier = std::map<uint64_t, Json>;
Earlier read_earlier(const std::string& path) {
  Earlier earlier;
  std::ifstream file(path);
  if (!path.empty() && !file) throw std::runtime_error("cannot read " + path);
  for (std::string line; std::getline(file, line);) {
    const Json result = Json::parse(line, nullptr, false);
    if (result.is_object()) earlier[result["seed"]] = result["times_us"];
  }
  return earlier;
}

// Each job takes the next seed. Returns the results of the cases that have run.
std::vector<Json> run_cases(const Budget& budget, const ChoiceLimits& limits,
                            const Earlier& earlier) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(budget.seconds);
  std::mutex mutex;
  std::vector<Json> results;
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    while (Clock::now() < end) {
      const uint64_t i = next++;
      if (i >= budget.cases) return;
      const auto found = earlier.find(budget.first + i);
      const Json result = run_case(budget.first + i, limits,
                                   found == earlier.end() ? Json::object() : found->second);
      const std::lock_guard lock(mutex);
      fmt::print("{}\n", result.dump());
      std::fflush(stdout);
      results.push_back(result);
    }
  };
  std::vector<std::future<void>> jobs;
  for (uint32_t i = 0; i < budget.jobs; ++i) jobs.push_back(std::async(std::launch::async, work));
  for (auto& job : jobs) job.get();
  return results;
}

}  // namespace
}  // namespace pacecar::predict

int main(int argc, char** argv) {
  using namespace pacecar::predict;
  Budget budget;
  ChoiceLimits limits;
  std::string earlier;
  CLI::App app("Compares the tuner's choices with the best, and with NCCL's own");
  app.add_option("--first", budget.first, "Seed of the first case");
  app.add_option("--cases", budget.cases, "Number of cases")->check(CLI::Range(1, 1'000'000));
  app.add_option("--jobs", budget.jobs, "Cases at a time")->check(CLI::Range(1, 256));
  app.add_option("--seconds", budget.seconds, "No case starts after this time");
  app.add_option("--hosts", limits.hosts, "Most hosts of a case, at least 8")
      ->check(CLI::Range(8, 64));
  app.add_option("--bytes", limits.bytes, "Largest size of a case")
      ->check(CLI::Range(10'000, 256'000'000));
  app.add_option("--cost-error", limits.cost_error,
                 "The library's steps take up to this many times what the tuner assumes, or this "
                 "many times less")
      ->check(CLI::Range(1.0, 10.0));
  app.add_option(
      "--earlier", earlier,
      "Output of an earlier run with the same limits: its times are not simulated again");
  CLI11_PARSE(app, argc, argv);
  try {
    print_summary(run_cases(budget, limits, read_earlier(earlier)));
  } catch (const std::exception& failure) {
    fmt::print(stderr, "error: {}\n", failure.what());
    return 2;
  }
  return 0;
}
