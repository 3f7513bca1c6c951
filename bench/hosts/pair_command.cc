// `pacecar bw` and `pacecar lat` with --hosts: between all pairs of many.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/ab/report/report.h"
#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/hosts/agent_pool.h"
#include "bench/hosts/pair_results.h"
#include "bench/perf/options.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
std::span<const PagePart> matrix_page_parts();  // by the build
}  // namespace pacecar

namespace pacecar::hosts {
namespace {

using cli::Console;
using perf::TestKind;
using perf::TestOptions;

constexpr double kAroundSeconds = 1;    // overhead of a size: starting both ends, connecting
constexpr double kRoomSeconds = 60;     // a timed measurement may take this much longer
constexpr double kCountedLimitS = 600;  // of a size, in a test that counts messages

// Adds -d NIC to the flags of each host that has an address in the list. A host without such a NIC
// is lost, and reported.
void choose_nics(AgentPool& agents, std::vector<std::vector<std::string>>& flags,
                 const Console& console) {
  const auto nics = ask_nics(
      agents, [&](size_t host) { return !agents.host(host).address.empty(); }, console);
  for (size_t i = 0; i < nics.size(); ++i) {
    const std::string& address = agents.host(i).address;
    if (!nics[i] || address.empty()) continue;
    const auto nic = std::ranges::find(*nics[i], address, &HostNic::address);
    if (nic != nics[i]->end()) {
      flags[i] = {"--ib-dev", nic->name};
      continue;
    }
    std::string why = fmt::format("none of its NICs has the address {}: it has ", address);
    for (const HostNic& has : *nics[i]) {
      why += fmt::format("{}{} ({})", &has == nics[i]->data() ? "" : ", ", has.name, has.address);
    }
    if (nics[i]->empty()) why += "none";
    console.error(fmt::format("{}: {}", agents.host(i).name, why));
    agents.lose(i, why);
  }
}

// The matrix as a page (page/) that works offline, without the pairs' own results.
std::string matrix_page(nlohmann::json document) {
  for (auto& pair : document["pairs"]) pair.erase("results");
  return page_of(matrix_page_parts(), "matrix.html", document);
}

// How long a measurement takes; 0: not known, as it counts messages.
double expected_seconds(const TestOptions& options) {
  const double duration = options.parameters.duration_s;
  return duration > 0 ? static_cast<double>(options.sizes.size()) * (duration + kAroundSeconds) : 0;
}

double limit_of(const TestOptions& options) {
  if (options.many.pair_limit_s > 0) return options.many.pair_limit_s;
  const double expected = expected_seconds(options);
  return expected > 0 ? expected + kRoomSeconds
                      : static_cast<double>(options.sizes.size()) * kCountedLimitS;
}

// Among the available hosts.
std::vector<Round> rounds_of(const AgentPool& agents, const std::string& pairs) {
  std::vector<size_t> there;
  for (size_t i = 0; i < agents.size(); ++i) {
    if (agents.ready(i)) there.push_back(i);
  }
  std::vector<Round> rounds = schedule(there.size(), pairs);
  for (Round& round : rounds) {
    for (Pair& pair : round) pair = {there[pair.sender], there[pair.receiver]};
  }
  return rounds;
}

size_t count_pairs(const std::vector<Round>& rounds) {
  size_t count = 0;
  for (const Round& round : rounds) count += round.size();
  return count;
}

class PairTest {
 public:
  PairTest(TestKind kind, const TestOptions& options, const Console& console)
      : kind_(kind), options_(options), console_(console) {}

  // Returns an ExitCode.
  Result<int> run() {
    for (const std::string& file : {options_.json_file, options_.many.html_file}) {
      RETURN_IF_ERROR(cli::check_writable(file));
    }
    ASSIGN_OR_RETURN(const auto targets, targets_of(options_.many.flags));
    if (targets.hosts.size() < 2) {
      return invalid(
          "--hosts names {0} alone: a pair needs two, or 'pacecar bw' there and 'pacecar bw {0}' "
          "here",
          targets.hosts[0].name);
    }
    const cli::Interrupt interrupt;
    begun_ = cli::steady_now();
    ASSIGN_OR_RETURN(auto agents, reach(targets, options_.many.flags, console_));
    PairPlan plan = plan_of(*agents);
    if (options_.nics.empty()) choose_nics(*agents, plan.of_hosts, console_);
    if (agents->ready_count() < 2) {
      return fail(ErrorCode::kPeer, "fewer than two hosts are left: a pair needs two");
    }
    const std::vector<Round> rounds = rounds_of(*agents, options_.many.pairs);
    const double expected = static_cast<double>(rounds.size()) * expected_seconds(options_);
    console_.note(fmt::format("{}, {} in {}{}", count_of(agents->ready_count(), "host"),
                              count_of(count_pairs(rounds), "measurement"),
                              count_of(rounds.size(), "round"),
                              expected > 0 ? fmt::format(": about {:.0f} s", expected) : ""));
    PairResults results(targets.hosts, std::string(name_of(kind_)),
                        options_.parameters.bidirectional);
    measure(*agents, plan, rounds, results);
    for (size_t i = 0; i < agents->size(); ++i) {
      if (agents->lost(i)) results.lose(i, agents->why_lost(i));
    }
    agents.reset();  // no process of ours is left on any host when the results are printed
    return report(results, plan);
  }

 private:
  PairPlan plan_of(const AgentPool& agents) const {
    return {.test = std::string(name_of(kind_)),
            .flags = options_.many.pair_flags,
            .of_hosts = std::vector<std::vector<std::string>>(agents.size()),
            .port = options_.port,
            .reversed = options_.parameters.reversed,
            .limit = cli::duration_of(limit_of(options_)),
            .when_late = "--pair-limit allows more"};
  }

  void measure(AgentPool& agents, const PairPlan& plan, const std::vector<Round>& rounds,
               PairResults& results) {
    cli::ProgressBar bar(console_.interactive());
    const size_t all = count_pairs(rounds);
    size_t done = 0;
    const auto on_done = [&](Measurement measurement) {
      for (const std::string& warning : measurement.warnings) warn_once(warning);
      results.add(std::move(measurement));
      ++done;
    };
    const auto on_turn = [&] { bar.show(done, all, "pairs"); };
    for (const Round& round : rounds) {
      measure_round(agents, plan, round, on_done, on_turn);
      if (cli::Interrupt::asked() || agents.ready_count() < 2) break;
    }
  }

  void warn_once(const std::string& warning) {
    const std::string text = warning.substr(warning.find(": ") + 1);
    if (warned_.insert(text).second) console_.warn(warning);
  }

  Result<int> report(const PairResults& results, const PairPlan& plan) const {
    if (cli::Interrupt::asked()) {
      console_.note("interrupted: this is what was measured until then");
    }
    const double least = options_.many.least;
    const nlohmann::json document = results.document(
        least, {{"test", plan.test},
                {"flags", plan.flags},
                {"pairs_mode", options_.many.pairs},
                {"least", least > 0 ? nlohmann::json(least) : nlohmann::json()},
                {"date", fmt::format("{:%F %R} UTC", fmt::gmtime(std::time(nullptr)))},
                {"seconds", (cli::steady_now() - begun_).seconds()},
                {"interrupted", cli::Interrupt::asked()}});
    const auto written = cli::write_results(results.text(least), options_.json_file, document);
    if (!options_.many.html_file.empty()) {
      RETURN_IF_ERROR(cli::write_text(options_.many.html_file, matrix_page(document)));
    }
    RETURN_IF_ERROR(written);
    if (results.measured() == 0) return fail(ErrorCode::kPeer, "nothing was measured: see above");
    if (!results.complete()) return cli::kExitFailed;
    return results.thresholds_met(least) ? cli::kExitOk : cli::kExitThresholdMissed;
  }

  TestKind kind_;
  const TestOptions& options_;
  const Console& console_;
  Instant begun_;
  std::set<std::string> warned_;
};

int run(TestKind kind, int argc, char** argv) {
  return perf::run_with_options(kind, argc, argv,
                                [kind](const TestOptions& options, const Console& console) {
                                  return PairTest(kind, options, console).run();
                                });
}

}  // namespace

int run_bw(int argc, char** argv) { return run(TestKind::kBandwidth, argc, argv); }

int run_lat(int argc, char** argv) { return run(TestKind::kLatency, argc, argv); }

}  // namespace pacecar::hosts
