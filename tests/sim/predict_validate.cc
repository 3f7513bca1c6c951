// predict_validate: runs random cases in the packet simulator and in the predictor. Prints a line
// of JSON per case, then a summary of the errors. A case's error is that of its worst job.
#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/predict.h"
#include "tests/support/predict_together.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"
#include "transport/base/units.h"

namespace pacecar::predict {
namespace {

struct CaseLimits {
  uint32_t hosts = 512;
  double work = 1.2e6;  // most packets of a simulation; a larger case is drawn again
};

// A random cluster with its collectives, as input of the simulator and of the predictor.
struct Case {
  std::string name;        // "64 hosts, 8 per leaf, 2:1, 100 Gb/s, 500 ns: ring of 64, 8 MB"
  std::string experiment;  // TOML for bench/sim
  Cluster cluster;
  std::vector<Collective> collectives;  // by job
  LibraryCosts overheads;
};

struct Job {
  std::string name;
  std::string workload;  // TOML for bench/sim, without the hosts
  Collective collective;
  double traffic = 0;  // bytes that all hosts send together
  double work = 0;     // of the simulation, in packets
};

constexpr Bytes kLargestPacket = 16384;

template <typename T>
T one_of(Prng& prng, std::span<const T> choices) {
  return choices[prng.below(choices.size())];
}

// Logarithmically uniform.
Bytes draw_size(Prng& prng) {
  constexpr double kSmallest = 8e3;
  constexpr double kLargest = 256e6;
  const double part = static_cast<double>(prng.below(1'000'000)) * 1e-6;
  return static_cast<Bytes>(kSmallest * std::pow(kLargest / kSmallest, part));
}

Job draw_job(Prng& prng, const std::vector<uint32_t>& hosts) {
  constexpr std::array<uint32_t, 3> kPieces{1, 4, 16};
  constexpr std::array<uint32_t, 2> kGroups{4, 8};
  constexpr std::array<uint32_t, 3> kParallel{1, 4, 8};
  const Bytes n = hosts.size();
  const uint64_t kind = prng.below(4);
  const uint32_t group = std::min(one_of<uint32_t>(prng, kGroups), static_cast<uint32_t>(n / 2));
  const auto pieces = one_of<uint32_t>(prng, kPieces);
  const auto parallel = one_of<uint32_t>(prng, kParallel);
  const Bytes bytes = (draw_size(prng) + n * n - 1) / (n * n) * (n * n);  // whole shares for all
  const auto name_of = [&](std::string_view what) {
    return fmt::format("{} of {}, {:.3g} MB", what, n, static_cast<double>(bytes) * 1e-6);
  };
  Job job{.collective = {.bytes = bytes, .hosts = hosts},
          .traffic = 2.0 * static_cast<double>(bytes * n)};
  double messages = 0;
  double message_work = 3;  // in packets, without payload: headers, control words, host work
  if (kind == 0) {
    job.name = name_of("ring");
    job.workload = fmt::format("kind = \"ring_all_reduce\"\nbytes = {}", bytes);
    messages = 2.0 * static_cast<double>(n * (n - 1));
  } else if (kind == 1) {
    job.name = name_of("tree") + fmt::format(" in {} pieces", pieces);
    job.workload =
        fmt::format("kind = \"tree_all_reduce\"\nbytes = {}\npieces = {}", bytes, pieces);
    job.collective.algorithm = Algorithm::kTree;
    job.collective.pieces = pieces;
    messages = 2.0 * static_cast<double>(n * pieces);
  } else if (kind == 2) {
    job.name = name_of("hierarchical") + fmt::format(" in groups of {}", group);
    job.workload = fmt::format(
        "kind = \"hierarchical_all_reduce\"\nbytes = {}\nhosts_per_server = {}", bytes, group);
    job.collective.algorithm = Algorithm::kHierarchical;
    job.collective.group = group;
    messages = 2.0 * static_cast<double>(n) * (group + static_cast<double>(n) / group);
  } else {
    job.name = name_of("all-to-all") + fmt::format(", {} at a time", parallel);
    job.workload =
        fmt::format("kind = \"all_to_all\"\nbytes = {}\nparallel = {}", bytes / n, parallel);
    job.collective.operation = Operation::kAllToAll;
    job.collective.algorithm = Algorithm::kPairwise;
    job.collective.parallel = parallel;
    job.traffic /= 2;
    messages = static_cast<double>(n * (n - 1));
    message_work = 60;  // each connection costs memory as well
  }
  job.work = message_work * messages + job.traffic / static_cast<double>(kLargestPacket);
  return job;
}

// The hosts of each job, equally many per job; in order or shuffled.
std::vector<std::vector<uint32_t>> draw_places(Prng& prng, uint32_t hosts, bool shuffled) {
  std::vector<uint32_t> all(hosts);
  std::iota(all.begin(), all.end(), 0U);
  for (uint32_t i = hosts - 1; shuffled && i > 0; --i) std::swap(all[i], all[prng.below(i + 1)]);
  constexpr std::array<uint32_t, 5> kJobs{1, 1, 1, 2, 4};
  const uint32_t jobs = hosts >= 16 && hosts <= 128 ? one_of<uint32_t>(prng, kJobs) : 1;
  std::vector<std::vector<uint32_t>> places;
  for (uint32_t job = 0; job < jobs; ++job) {
    const uint32_t each = hosts / jobs;
    places.emplace_back(all.begin() + job * each, all.begin() + (job + 1) * each);
  }
  return places;
}

// None if the simulation would exceed limits.work.
std::optional<Case> try_case(Prng& prng, uint64_t seed, const CaseLimits& limits) {
  constexpr std::array<uint32_t, 7> kHosts{8, 16, 32, 64, 128, 256, 512};
  constexpr std::array<uint32_t, 4> kPerLeaf{4, 8, 16, 32};
  constexpr std::array<uint32_t, 3> kOversubscriptions{1, 2, 4};
  constexpr std::array<uint32_t, 4> kGbps{25, 100, 200, 400};
  constexpr std::array<uint32_t, 3> kDelays{500, 1000, 2000};
  uint32_t hosts = 0;
  do hosts = one_of<uint32_t>(prng, kHosts);
  while (hosts > limits.hosts);
  const uint32_t per_leaf = std::min(one_of<uint32_t>(prng, kPerLeaf), hosts / 2);
  const uint32_t over = one_of<uint32_t>(prng, kOversubscriptions);
  const uint32_t gbps = one_of<uint32_t>(prng, kGbps);
  const uint32_t delay_ns = one_of<uint32_t>(prng, kDelays);
  const bool shuffled = prng.chance(0.4);

  Case drawn;
  std::string jobs;
  std::vector<std::string> names;
  double all_traffic = 0;
  double all_work = 0;
  for (const auto& members : draw_places(prng, hosts, shuffled)) {
    const Job job = draw_job(prng, members);
    all_traffic += job.traffic;
    all_work += job.work;
    jobs +=
        fmt::format("[[workload.job]]\n{}\nhosts = [{}]\n", job.workload, fmt::join(members, ", "));
    drawn.collectives.push_back(job.collective);
    names.push_back(job.name);
  }
  if (all_work > limits.work) return std::nullopt;
  Bytes mtu = 4096;
  while (mtu < kLargestPacket && all_traffic / static_cast<double>(mtu) > limits.work / 3) mtu *= 2;
  drawn.name =
      fmt::format("{} hosts, {} per leaf, {}:1, {} Gb/s, {} ns{}: {}", hosts, per_leaf, over, gbps,
                  delay_ns, shuffled ? ", shuffled" : "", fmt::join(names, "; "));
  drawn.experiment = fmt::format(
      "[topology]\nkind = \"leaf-spine\"\nhosts = {}\nhosts_per_leaf = {}\nspines = {}\n"
      "rate = \"{}G\"\ndelay = \"{}ns\"\n[transport]\nmtu = {}\nburst = {}\n"
      "[run]\nseed = {}\ntime_limit = \"100s\"\nsample_series = 0\n{}",
      hosts, per_leaf, per_leaf / over, gbps, delay_ns, mtu, mtu, seed, jobs);
  NicKind& nic = drawn.cluster.nic_kinds[0];
  nic.name = fmt::format("{}G", gbps);
  nic.rate = bytes_per_s(gbps);
  nic.packet_bytes = static_cast<double>(mtu);
  drawn.cluster.groups = {{.hosts = hosts, .gpus = 1, .nics = {0}}};
  drawn.cluster.fabric.hosts_per_leaf = per_leaf;
  drawn.cluster.fabric.oversubscription = over;
  drawn.cluster.fabric.cable_latency_s = delay_ns * 1e-9;
  drawn.overheads = message_costs();
  return drawn;
}

// The same seed and limits draw the same case.
Case draw_case(uint64_t seed, const CaseLimits& limits) {
  Prng prng(seed);
  for (;;) {
    if (auto drawn = try_case(prng, seed, limits)) return *std::move(drawn);
  }
}

struct Options {
  std::string seeds = "1:12";  // FIRST:COUNT
  CaseLimits limits;
  double median = 1;  // largest that passes
  double percentile95 = 1;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// In seconds, by job.
std::vector<double> predict_case(const Case& drawn) {
  if (drawn.collectives.size() > 1) {
    return predict_together(drawn.cluster, drawn.collectives, drawn.overheads);
  }
  return {predict(drawn.cluster, drawn.collectives[0], drawn.overheads).time_s};
}

Result<RunResult> simulate(const Case& drawn) {
  ASSIGN_OR_RETURN(const auto tables, parse_spec(drawn.experiment, "case"));
  ASSIGN_OR_RETURN(const auto spec, make_run_spec(*tables.table(), ""));
  return run_experiment(spec);
}

// When the last byte of each job was received.
std::vector<double> ends_of(const RunResult& run, size_t jobs) {
  std::vector<double> ends(jobs);
  for (const FlowResult& flow : run.flows) {
    ends[flow.job] = std::max(ends[flow.job], flow.received.seconds());
  }
  return ends;
}

// Prints the case, and returns the error of its worst job.
Result<double> judge_case(uint64_t seed, const CaseLimits& limits) {
  const Case drawn = draw_case(seed, limits);
  auto begin = std::chrono::steady_clock::now();
  const auto predicted = predict_case(drawn);
  const double predict_s = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto run, simulate(drawn));
  const auto ends = ends_of(run, predicted.size());
  nlohmann::json jobs = nlohmann::json::array();
  double worst = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const double error = predicted[i] / ends[i] - 1;
    if (std::abs(error) >= std::abs(worst)) worst = error;
    jobs.push_back({{"sim_us", ends[i] * 1e6}, {"predicted_us", predicted[i] * 1e6}});
  }
  const nlohmann::json line{{"seed", seed},
                            {"name", drawn.name},
                            {"error", worst},
                            {"jobs", jobs},
                            {"sim_s", seconds_since(begin)},
                            {"predict_s", predict_s},
                            {"drops", run.fabric.all_dropped()},
                            {"complete", run.complete}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
  return std::abs(worst);
}

int run(const Options& options) {
  const size_t colon = options.seeds.find(':');
  const uint64_t first = std::stoull(options.seeds);
  const uint64_t count =
      colon == std::string::npos ? 1 : std::stoull(options.seeds.substr(colon + 1));
  std::vector<double> errors;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto error = judge_case(seed, options.limits);
    if (!error) {
      fmt::print(stderr, "seed {}: {}\n", seed, error.error().message);
      return 2;
    }
    errors.push_back(*error);
  }
  if (errors.empty()) return 2;
  std::ranges::sort(errors);
  const double median = errors[errors.size() / 2];
  const double percentile95 = errors[errors.size() * 95 / 100];
  fmt::print("{} cases: median error {:.1f}%, 95th percentile {:.1f}%, largest {:.1f}%\n",
             errors.size(), 100 * median, 100 * percentile95, 100 * errors.back());
  return median <= options.median && percentile95 <= options.percentile95 ? 0 : 1;
}

}  // namespace
}  // namespace pacecar::predict

int main(int argc, char** argv) {
  pacecar::predict::Options options;
  CLI::App app("Compares the predictor of collectives with the packet simulator on random cases.");
  app.add_option("--seeds", options.seeds, "FIRST:COUNT")->check([](const std::string& text) {
    const bool good = !text.empty() && text.size() < 20 && text.front() != ':' &&
                      text.back() != ':' &&
                      text.find_first_not_of("0123456789:") == std::string::npos;
    return good ? std::string() : "is not FIRST:COUNT, such as 1:12";
  });
  app.add_option("--hosts", options.limits.hosts, "most hosts of a case, at least 8")
      ->check(CLI::Range(8, 512));
  app.add_option("--work", options.limits.work, "most work of one simulation, in packets")
      ->check(CLI::Range(3e4, 1e9));
  app.add_option("--median", options.median, "largest median error that passes, 0.05: 5%");
  app.add_option("--percentile95", options.percentile95,
                 "largest 95th percentile of errors that passes");
  CLI11_PARSE(app, argc, argv);
  return pacecar::predict::run(options);
}
