#include "bench/hosts/path_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/interrupt.h"
#include "bench/cli/json_fields.h"
#include "bench/hosts/pair_runner.h"

namespace pacecar::hosts {
namespace {

using nlohmann::json;
using preflight::Severity;

constexpr Duration kPairLimit = Duration::from_s(15);
// Long enough to find out which packets pass (0.2 s), with enough of them to see a loss of one in a
// thousand; slow enough for a network that is in use. Both directions at once.
const std::vector<std::string> kTest{"-b", "-s", "65536", "-D", "0.4", "--rate_limit", "0.1"};
constexpr size_t kAtOnce = 8;        // pairs of one host
constexpr double kMostLost = 0.001;  // of the packets

// The value of `key` in a host's document; null if it is missing.
json member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() ? *found : json();
}

// The part of both ends' packets that were retransmissions.
double lost_part(const json& results) {
  double again = 0;
  double sent = 0;
  for (const char* end : {"client", "server"}) {
    const json counters = member(member(results, end), "counters");
    const auto number = [&](const char* key) {  // 0: it is missing
      return cli::number_field(counters, key, 0, cli::kMaxNumber).value_or(0);
    };
    again += number("packets_retransmitted");
    sent += number("packets_sent");
  }
  return sent > 0 ? again / sent : 0;
}

// Each pair once, as the test has both directions.
std::vector<Round> rounds_of(const std::vector<size_t>& hosts) {
  std::vector<Round> rounds;
  size_t joined = 2 * kAtOnce;  // ways in the last round
  for (const Round& one_way : schedule(hosts.size(), "disjoint")) {
    if (joined++ == 2 * kAtOnce) {
      rounds.emplace_back();
      joined = 1;
    }
    for (const Pair& pair : one_way) {
      if (pair.sender > pair.receiver) continue;
      rounds.back().push_back({hosts[pair.sender], hosts[pair.receiver]});
    }
  }
  return rounds;
}

class PathCheck {
 public:
  explicit PathCheck(AgentPool& agents, std::vector<std::vector<HostNic>> nics)
      : agents_(agents), nics_(std::move(nics)) {}

  // The NICs of this index.
  void try_rail(size_t rail) {
    std::vector<size_t> hosts;
    PairPlan plan{.test = "bw",
                  .flags = kTest,
                  .of_hosts = {},
                  .limit = kPairLimit,
                  .when_late = "'pacecar bw' between the two shows how it goes on"};
    for (size_t host = 0; host < nics_.size(); ++host) {
      plan.of_hosts.emplace_back();
      if (nics_[host].size() <= rail || !agents_.ready(host)) continue;
      hosts.push_back(host);
      plan.of_hosts.back() = {"--ib-dev", nics_[host][rail].name};
    }
    for (const Round& round : rounds_of(hosts)) {
      const auto judge = [&](const Measurement& measurement) { add(measurement, rail); };
      measure_round(agents_, plan, round, judge, [] {});
      if (cli::Interrupt::asked()) return;
    }
  }

  PathReport take() { return std::move(report_); }

 private:
  void add(const Measurement& measurement, size_t rail) {
    const auto [one, other] = measurement.pair;
    const std::string& nic = nics_[one][rail].name;
    const std::string& peer = nics_[other][rail].name;
    const std::string path =
        fmt::format("{} and {} over {}", agents_.host(one).name, agents_.host(other).name,
                    nic == peer ? nic : nic + " and " + peer);
    const auto find = [&](Severity severity, const std::string& text) {
      report_.findings.push_back({severity, path, text});
    };
    ++report_.paths;
    if (measurement.results.is_null()) return find(Severity::kError, measurement.error);
    ++report_.good;
    for (const std::string& warning : measurement.warnings) find(Severity::kWarning, warning);
    if (const double lost = lost_part(measurement.results); lost > kMostLost) {
      find(Severity::kWarning,
           fmt::format("{:.2g}% of the packets were sent again: something on this path drops or "
                       "reorders them; 'pacecar bw -D 10' between the two shows how many",
                       lost * 100));
    }
  }

  AgentPool& agents_;
  const std::vector<std::vector<HostNic>> nics_;  // of each host
  PathReport report_;
};

}  // namespace

Severity PathReport::worst() const {
  Severity worst = Severity::kOk;
  for (const PathFinding& finding : findings) worst = std::max(worst, finding.severity);
  return worst;
}

std::string PathReport::text() const {
  std::string text;
  for (const PathFinding& finding : findings) {
    text += fmt::format("{:<7}  between {}: {}\n", to_string(finding.severity), finding.path,
                        finding.text);
  }
  return text + fmt::format("Paths: {} of {} carry a job's packets.\n", good, paths);
}

json PathReport::document() const {
  json found = json::array();
  for (const PathFinding& finding : findings) {
    found.push_back({{"severity", to_string(finding.severity)},
                     {"path", finding.path},
                     {"message", finding.text}});
  }
  return {{"tried", paths}, {"good", good}, {"findings", found}};
}

PathReport check_paths(AgentPool& agents, const cli::Console& console) {
  const auto found = ask_nics(
      agents, [](size_t) { return true; }, console);
  std::vector<std::vector<HostNic>> nics;
  size_t rails = 0;
  for (const auto& of_host : found) {
    nics.push_back(of_host.value_or(std::vector<HostNic>()));
    rails = std::max(rails, nics.back().size());
  }
  PathCheck check(agents, std::move(nics));
  for (size_t rail = 0; rail < rails && !cli::Interrupt::asked(); ++rail) check.try_rail(rail);
  return check.take();
}

}  // namespace pacecar::hosts
