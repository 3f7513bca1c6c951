// `pacecar bw` and `pacecar lat` with --hosts: between all pairs of many.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
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
#include "bench/cli/json_fields.h"
#include "bench/cli/subcommands.h"
#include "bench/hosts/crew.h"
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

constexpr Duration kInfoLimit = Duration::from_s(60);
constexpr size_t kMaxName = 256;
constexpr double kGuessedBps = 10e9;    // for tests that count messages
constexpr double kAroundSeconds = 0.7;  // overhead of a measurement: starting both ends, connecting
constexpr double kRoomSeconds = 60;     // a timed measurement may take this much longer
constexpr double kCountedLimitS = 600;  // the least limit of a test that counts messages

// The name of the NIC with this address in the output of `pacecar info --json`. Errors: kNotFound.
Result<std::string> nic_with_address(const std::string& info, const std::string& address) {
  const auto document = cli::parse_json(info);
  std::vector<std::string> found;
  if (document.is_object() && document.contains("nics") && document["nics"].is_array()) {
    for (const auto& nic : document["nics"]) {
      const auto name = cli::text_field(nic, "name", kMaxName);
      const auto its = cli::text_field(nic, "address", kMaxName);
      if (!name || !its) continue;
      if (*its == address) return *name;
      found.push_back(fmt::format("{} ({})", *name, *its));
    }
  }
  return fail(ErrorCode::kNotFound, "none of its NICs has the address {}: it has {}", address,
              found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", ")));
}

// Adds -d NIC to the flags of each host that has an address in the list. A host without such a NIC
// is lost, and reported.
void choose_nics(Crew& crew, std::vector<std::vector<std::string>>& flags, const Console& console) {
  using Words = std::vector<std::string>;
  const auto asked = [&](size_t host) {
    return crew.host(host).address.empty() ? Words() : Words{"info", "--json"};
  };
  const auto ends = run_on_all(crew, asked, kInfoLimit, console);
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]) continue;
    const auto nic = ends[i]->code == 0 ? nic_with_address(ends[i]->output, crew.host(i).address)
                                        : fail(ErrorCode::kPeer, why_failed(*ends[i]));
    if (nic) {
      flags[i] = {"--ib-dev", *nic};
      continue;
    }
    console.error(fmt::format("{}: {}", crew.host(i).name, nic.error().message));
    crew.lose(i, nic.error().message);
  }
}

// The matrix as a page (page/) that works offline, without the pairs' own results.
std::string matrix_page(nlohmann::json document) {
  for (auto& pair : document["pairs"]) pair.erase("results");
  return page_of(matrix_page_parts(), "matrix.html", document);
}

double seconds_of_pair(TestKind kind, const TestOptions& options) {
  const auto sizes = static_cast<double>(options.sizes.size());
  if (options.parameters.duration_s > 0) {
    return sizes * (options.parameters.duration_s + kAroundSeconds);
  }
  double bytes = 0;
  for (const uint64_t size : options.sizes) bytes += static_cast<double>(size);
  const auto messages =
      static_cast<double>(options.parameters.iterations * options.parameters.connections);
  constexpr double kRoundTripS = 20e-6;
  const double seconds = kind == TestKind::kLatency ? messages * kRoundTripS * sizes
                                                    : messages * bytes * 8 / kGuessedBps;
  return seconds + sizes * kAroundSeconds;
}

double limit_of(TestKind kind, const TestOptions& options) {
  if (options.many.pair_limit_s > 0) return options.many.pair_limit_s;
  const double seconds = seconds_of_pair(kind, options);
  return options.parameters.duration_s > 0 ? seconds + kRoomSeconds
                                           : std::max(10 * seconds, kCountedLimitS);
}

std::string span_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  if (seconds < 5400) return fmt::format("{:.0f} minutes", seconds / 60);
  return fmt::format("{:.1f} hours", seconds / 3600);
}

// Among the available hosts.
std::vector<Round> rounds_of(const Crew& crew, const std::string& pairs) {
  std::vector<size_t> there;
  for (size_t i = 0; i < crew.size(); ++i) {
    if (crew.ready(i)) there.push_back(i);
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
    ASSIGN_OR_RETURN(auto crew, reach(targets, options_.many.flags, console_));
    PairPlan plan = plan_of(*crew);
    if (options_.nics.empty()) choose_nics(*crew, plan.of_hosts, console_);
    if (crew->ready_count() < 2) {
      return fail(ErrorCode::kPeer, "fewer than two hosts are left: a pair needs two");
    }
    const std::vector<Round> rounds = rounds_of(*crew, options_.many.pairs);
    print_estimate(crew->ready_count(), rounds);
    PairResults results(targets.hosts, std::string(name_of(kind_)),
                        options_.parameters.bidirectional);
    measure(*crew, plan, rounds, results);
    for (size_t i = 0; i < crew->size(); ++i) {
      if (crew->lost(i)) results.lose(i, crew->why_lost(i));
    }
    crew.reset();  // no process of ours is left on any host when the results are printed
    return report(results, plan);
  }

 private:
  PairPlan plan_of(const Crew& crew) const {
    return {.test = std::string(name_of(kind_)),
            .flags = options_.many.pair_flags,
            .of_hosts = std::vector<std::vector<std::string>>(crew.size()),
            .port = options_.port,
            .reversed = options_.parameters.reversed,
            .limit = cli::duration_of(limit_of(kind_, options_))};
  }

  void print_estimate(size_t hosts, const std::vector<Round>& rounds) const {
    const size_t most = std::ranges::max_element(rounds, {}, std::ranges::size)->size();
    console_.note(fmt::format(
        "{}, {} in {}, {} at a time: about {}", count_of(hosts, "host"),
        count_of(count_pairs(rounds), "measurement"), count_of(rounds.size(), "round"), most,
        span_text(static_cast<double>(rounds.size()) * seconds_of_pair(kind_, options_))));
  }

  void measure(Crew& crew, const PairPlan& plan, const std::vector<Round>& rounds,
               PairResults& results) {
    cli::ProgressBar bar(console_.interactive());
    const auto all = static_cast<double>(count_pairs(rounds));
    const Instant begun = cli::steady_now();
    size_t done = 0;
    const auto on_done = [&](Measurement measurement) {
      for (const std::string& warning : measurement.warnings) warn_once(warning);
      results.add(std::move(measurement));
      ++done;
    };
    const auto on_turn = [&] {
      const Duration elapsed = cli::steady_now() - begun;
      if (!bar.due(elapsed)) return;
      bar.draw(static_cast<double>(done) / all, fmt::format("{} of {} pairs", done, all), elapsed);
    };
    for (const Round& round : rounds) {
      measure_round(crew, plan, round, on_done, on_turn);
      if (cli::Interrupt::asked() || crew.ready_count() < 2) break;
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
