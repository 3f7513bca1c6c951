// predict_choices: compares the tuner's choices with the best, and with those of NCCL's own model.
// For each random case the packet simulator runs every algorithm and protocol that could be the
// best. Prints a line of JSON for each case, then a summary.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "bench/predict/choices/choice_case.h"
#include "bench/sim/run.h"
#include "bench/workload/workload.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/tuner/tuner.h"

namespace pacecar::predict {
namespace {

// --- a collective of a library like NCCL as flows for the packet simulator: with its algorithms,
// chunks and slots, and the time of a GPU for each step. One GPU per host. Shares no code with the
// predictor's plans, which it judges. ---

struct LibraryFlows {
  uint32_t hosts = 8;
  uint32_t nics = 1;  // of a host, with a channel each; NIC i of host h is host h*nics+i of the run
  Operation operation{};
  Algorithm algorithm{};
  Bytes bytes = 0;
  ProtocolCosts costs;
};

constexpr uint32_t kNobody = ~0U;
using Flows = std::vector<uint32_t>;

bool is_all_reduce(const LibraryFlows& what) { return what.operation == Operation::kAllReduce; }

double pieces_of(double bytes, Bytes chunk) {
  return std::max(1.0, std::ceil(bytes / static_cast<double>(chunk)));
}

// One channel's flows, over one NIC of each host.
class Channel {
 public:
  Channel(FlowGraph& graph, const LibraryFlows& what, uint32_t nic)
      : graph_(graph), what_(what), nic_(nic) {}

  void ring() {
    const uint32_t n = what_.hosts;
    const double share = bytes() / n;
    const double rounds = pieces_of(share, what_.costs.chunk);
    const auto steps = static_cast<uint32_t>((is_all_reduce(what_) ? 2 : 1) * (n - 1) * rounds);
    std::vector<Flows> sent(steps, Flows(n));
    for (uint32_t step = 0; step < steps; ++step) {
      for (uint32_t i = 0; i < n; ++i) {
        After after;
        if (step > 0) after.received = {sent[step - 1][(i + n - 1) % n]};
        if (step >= what_.costs.slots) after.sent = {sent[step - what_.costs.slots][i]};
        sent[step][i] = add(after, i, (i + 1) % n, share / rounds);
      }
    }
  }

  // In pieces from host to host.
  void chain() {
    const double pieces = pieces_of(bytes(), what_.costs.chunk);
    Flows before;
    for (uint32_t i = 0; i + 1 < what_.hosts; ++i) {
      before = edge(i, i + 1, {before}, pieces, bytes());
    }
  }

  // Two binary trees with half of the buffer each; inner nodes of one are leaves of the other.
  void trees() {
    const uint32_t n = what_.hosts;
    tree([](uint32_t place) { return place; });
    if (n % 2 == 0) {
      tree([n](uint32_t place) { return n - 1 - place; });
    } else {
      tree([n](uint32_t place) { return (place + 1) % n; });
    }
  }

  // As a Bruck all-gather, or its reverse, in log2 n steps.
  void pat() {
    const uint32_t n = what_.hosts;
    Flows before;
    for (uint32_t distance = 1; distance < n; distance *= 2) {
      const double part = bytes() / n * std::min(distance, n - distance);
      Flows now(n);
      for (uint32_t i = 0; i < n; ++i) {
        After after;
        if (!before.empty()) after.received = {before[(i + n - distance / 2) % n]};
        now[i] = add(after, i, (i + distance) % n, part);
      }
      before = now;
    }
  }

 private:
  double bytes() const { return static_cast<double>(what_.bytes) / what_.nics; }

  uint32_t add(const After& after, uint32_t from, uint32_t to, double payload) {
    const double sent = std::max(1.0, std::round(payload / what_.costs.payload));
    const uint32_t flow = graph_.add_after(after, from * what_.nics + nic_, to * what_.nics + nic_,
                                           static_cast<Bytes>(sent));
    graph_.flow(flow).start = Duration::from_ns(std::llround(what_.costs.step_s * 1e9));
    return flow;
  }

  // Sends each piece when it has arrived by all `inputs`, some of which may be empty.
  Flows edge(uint32_t from, uint32_t to, const std::vector<Flows>& inputs, double pieces,
             double bytes) {
    Flows flows;
    for (uint32_t piece = 0; piece < static_cast<uint32_t>(pieces); ++piece) {
      After after;
      for (const Flows& input : inputs) {
        if (!input.empty()) after.received.push_back(input[piece]);
      }
      if (piece >= what_.costs.slots) after.sent = {flows[piece - what_.costs.slots]};
      flows.push_back(add(after, from, to, bytes / pieces));
    }
    return flows;
  }

  // The lowest set bit of a place is its height: leaves are odd.
  template <typename HostAt>
  void tree(HostAt host_at) {
    const uint32_t n = what_.hosts;
    const double half = bytes() / 2;
    const double pieces = pieces_of(half, what_.costs.chunk);
    std::vector<uint32_t> parents(n, kNobody);
    for (uint32_t i = 1; i < n; ++i) {
      const uint32_t low = 1U << std::countr_zero(i);
      const uint32_t up = (i ^ low) | (low << 1);
      parents[i] = up < n ? up : i ^ low;
    }
    // Deepest first; place 0 is the root.
    std::vector<uint32_t> order(n - 1);
    std::iota(order.begin(), order.end(), 1U);
    const auto depth = [&](uint32_t i) {
      uint32_t levels = 0;
      for (; parents[i] != kNobody; i = parents[i]) ++levels;
      return levels;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return depth(a) > depth(b); });
    std::vector<std::vector<Flows>> up(n);
    for (const uint32_t i : order) {
      up[parents[i]].push_back(edge(host_at(i), host_at(parents[i]), up[i], pieces, half));
    }
    std::vector<std::vector<Flows>> down(n);
    down[0] = up[0];
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
      down[*i] = {edge(host_at(parents[*i]), host_at(*i), down[parents[*i]], pieces, half)};
    }
  }

  FlowGraph& graph_;
  const LibraryFlows& what_;
  const uint32_t nic_;
};

Workload library_workload(const LibraryFlows& what) {
  FlowGraph graph;
  for (uint32_t nic = 0; nic < what.nics; ++nic) {
    Channel channel(graph, what, nic);
    if (what.algorithm == Algorithm::kTree) {
      channel.trees();
    } else if (what.algorithm == Algorithm::kPat) {
      channel.pat();
    } else if (what.operation == Operation::kBroadcast) {
      channel.chain();
    } else {
      channel.ring();
    }
  }
  Workload made = graph.take();
  made.hosts = what.hosts * what.nics;
  return made;
}

// A lower bound of the time in seconds: of the sends of a NIC of `rate` (bytes per second), or of
// the steps.
double least_s(const LibraryFlows& what, double rate) {
  const double n = what.hosts;
  const double all = static_cast<double>(what.bytes) / what.costs.payload / what.nics / rate;
  const bool ring = what.algorithm == Algorithm::kRing;
  const bool broadcast = what.operation == Operation::kBroadcast;
  if (what.algorithm == Algorithm::kTree || broadcast) {
    const double levels = broadcast ? n - 1 : 2 * std::floor(std::log2(n));
    return std::max(all, levels * what.costs.step_s);
  }
  const double rounds = is_all_reduce(what) ? 2 : 1;
  const double steps = ring ? rounds * (n - 1) : std::log2(n);
  return std::max(rounds * all * (n - 1) / n, steps * what.costs.step_s);
}

// --- the comparison ---

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
