// How far the predictor is from the packet simulator: random cases from seeds.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/predict/cases.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "net_plugin/predict/predict.h"

namespace pacecar::predict {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Case drawn = draw_case(seed, {});
    if (std::getenv("DRY") != nullptr) {
      fmt::print("{} {}\n", seed, drawn.name);
      continue;
    }
    const auto spec_value = parse_spec(drawn.experiment, "case");
    if (!spec_value) {
      fmt::print(stderr, "{}\n", spec_value.error().message);
      return 2;
    }
    const auto spec = make_run_spec(*spec_value->table(), "");
    if (!spec) {
      fmt::print(stderr, "{}\n", spec.error().message);
      return 2;
    }
    auto begin = std::chrono::steady_clock::now();
    const auto found =
        drawn.collectives.size() == 1
            ? std::vector{predict(drawn.cluster, drawn.collectives[0], drawn.library)}
            : predict_together(drawn.cluster, drawn.collectives, drawn.library);
    const double predict_s = seconds_since(begin);
    if (std::getenv("PRED") != nullptr) {
      nlohmann::json t = nlohmann::json::array();
      for (const auto& one : found) t.push_back(one.time_s * 1e6);
      fmt::print("{}\n", nlohmann::json{{"seed", seed}, {"t", t}, {"predict_s", predict_s}}.dump());
      continue;
    }
    begin = std::chrono::steady_clock::now();
    const auto result = run_experiment(*spec);
    const double sim_s = seconds_since(begin);
    if (!result) {
      fmt::print(stderr, "{}\n", result.error().message);
      return 2;
    }
    std::vector<double> last(drawn.collectives.size());
    for (const FlowResult& flow : result->flows)
      last[flow.job] = std::max(last[flow.job], flow.received.seconds());
    nlohmann::json jobs = nlohmann::json::array();
    double worst = 0;
    for (size_t i = 0; i < last.size(); ++i) {
      const double error = found[i].time_s / last[i] - 1;
      if (std::abs(error) >= std::abs(worst)) worst = error;
      jobs.push_back({{"sim_us", last[i] * 1e6},
                      {"predicted_us", found[i].time_s * 1e6},
                      {"terms", found[i].terms}});
    }
    nlohmann::json line{{"seed", seed},
                        {"name", drawn.name},
                        {"error", worst},
                        {"jobs", jobs},
                        {"sim_s", sim_s},
                        {"predict_s", predict_s},
                        {"drops", result->fabric.all_dropped()},
                        {"complete", result->complete}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace pacecar::predict

int main(int argc, char** argv) {
  return pacecar::predict::run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1,
                               argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10);
}
