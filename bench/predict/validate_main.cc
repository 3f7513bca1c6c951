// predict_validate: random cases from seeds, each in the packet simulator and in the predictor; a
// JSON line for each, then how far apart they are. A case's error is that of its worst job.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/predict/cases.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "net_plugin/predict/predict.h"
#include "transport/base/return_if_error.h"

namespace pacecar::predict {
namespace {

struct Options {
  std::string seeds = "1:12";  // the first, and how many
  CaseLimits limits;
  double median = 1;  // largest that passes
  double percentile95 = 1;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<Prediction> predict_case(const Case& drawn) {
  if (drawn.collectives.size() > 1) {
    return predict_together(drawn.cluster, drawn.collectives, drawn.overheads);
  }
  return {predict(drawn.cluster, drawn.collectives[0], drawn.overheads)};
}

Result<RunResult> simulate(const Case& drawn) {
  ASSIGN_OR_RETURN(const auto tables, parse_spec(drawn.experiment, "case"));
  ASSIGN_OR_RETURN(const auto spec, make_run_spec(tables->table(), ""));
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

// The error of the worst job; prints the case.
Result<double> try_case(uint64_t seed, const CaseLimits& limits) {
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
    const double error = predicted[i].time_s / ends[i] - 1;
    if (std::abs(error) >= std::abs(worst)) worst = error;
    jobs.push_back({{"sim_us", ends[i] * 1e6}, {"predicted_us", predicted[i].time_s * 1e6}});
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
    const auto error = try_case(seed, options.limits);
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
  CLI::App app("The predictor of collectives beside the packet simulator, on random cases.");
  app.add_option("--seeds", options.seeds, "FIRST:COUNT")->check([](const std::string& text) {
    const bool good = !text.empty() && text.size() < 20 && text.front() != ':' &&
                      text.back() != ':' &&
                      text.find_first_not_of("0123456789:") == std::string::npos;
    return good ? std::string() : "is not FIRST:COUNT, such as 1:12";
  });
  app.add_option("--hosts", options.limits.hosts, "at most, and at least 8")
      ->check(CLI::Range(8, 512));
  app.add_option("--work", options.limits.work, "of one simulation, in packets, at most")
      ->check(CLI::Range(3e4, 1e9));
  app.add_option("--median", options.median, "largest median error that passes");
  app.add_option("--percentile95", options.percentile95, "likewise");
  CLI11_PARSE(app, argc, argv);
  return pacecar::predict::run(options);
}
