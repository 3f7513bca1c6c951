#include "bench/doctor/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "bench/doctor/ranks.h"

namespace pacecar::doctor {
namespace {

// Trouble by the order of its rules, then whatever has a limit, then what has no more to send.
size_t severity(const Finding& finding) {
  const size_t place = static_cast<size_t>(finding.rule - rules().data());
  if (finding.rule->trouble || place + 1 == rules().size()) return place;
  return rules().size() - 2;
}

bool worse(const Finding& a, const Finding& b) {
  const auto key = [](const Finding& finding) {
    const Flow& flow = *finding.path.flow;
    const double still = finding.rule->trouble ? flow.still_s : 0;
    return std::tuple(severity(finding), -still, flow.goodput_bps.value_or(flow.rate_bps));
  };
  return key(a) < key(b);
}

// Names of processes whether known or not, such that one has the same everywhere.
std::string waiter_of(const Finding& finding) { return name_of(*finding.path.process); }
std::string awaited_by(const Finding& finding) { return finding.path.peer_name(); }

// from the awaited process to the waiting ones
using Graph = std::map<std::string, std::set<std::string>>;

std::set<std::string> all_waiters(const Graph& graph, const std::string& awaited) {
  std::set<std::string> found;
  std::vector<std::string> next = {awaited};
  while (!next.empty()) {
    const auto edges = graph.find(next.back());
    next.pop_back();
    if (edges == graph.end()) continue;
    for (const std::string& waiter : edges->second) {
      if (waiter != awaited && found.insert(waiter).second) next.push_back(waiter);
    }
  }
  return found;
}

// What the finding itself says, of its own process.
Verdict verdict_of(const Finding& finding) {
  const Path& path = finding.path;
  return {.trouble = finding.rule->trouble,
          .rule = std::string(finding.rule->name),
          .process = name_of(*path.process),
          .nic = path.nic->name,
          .path = fmt::format("{} {}", name_of(*path.process), path.end()),
          .why = finding.why()};
}

Verdict verdict_of_waiting(const Job& job, const WaitedFor& found) {
  Verdict verdict = verdict_of(*found.longest);
  if (found.circle) {
    verdict.rule = "circle";
    verdict.why = fmt::format(
        "{} processes wait for each other in a circle: do all ranks call the same collectives, in "
        "one order and with the same sizes?",
        found.waiters);
    return verdict;
  }
  const Nic* const nic = found.longest->path.peer_nic();
  verdict.process = found.name;
  verdict.nic = nic != nullptr ? nic->name : "";
  verdict.why = fmt::format(
      "{} of {} processes seen wait for it, and it waits for nobody: it computes, is stopped, or "
      "has failed; look there{}",
      found.waiters, job.processes().size(),
      nic != nullptr ? "" : ", and run pacecar doctor there");
  return verdict;
}

// The ranks' own records name causes; what flows say is worse if nothing moves or packets are lost.
bool decides(const RankFinding& rank, const std::vector<Finding>& flows) {
  if (flows.empty() || !flows.front().rule->trouble) return true;
  const std::string_view worst = flows.front().rule->name;
  if (worst == "fault" || worst == "unacknowledged") return false;
  return worst != "loss" ? rank.rule == "mismatch"
                         : rank.rule == "mismatch" || rank.rule == "slow-host";
}

Verdict verdict_of_rank(const RankFinding& found) {
  const bool to_it = found.rule == "incast";
  const std::string path =
      found.peer == nullptr ? ""
                            : fmt::format("{} to {}", name_of(to_it ? *found.peer : *found.process),
                                          name_of(to_it ? *found.process : *found.peer));
  return {true, std::string(found.rule), name_of(*found.process), "", path, found.why};
}

// Both ends of a flow wait for each other, or nothing is acknowledged: the path is cut.
std::vector<const Finding*> cut_paths(const std::vector<Finding>& findings) {
  std::vector<const Finding*> cut;
  for (const Finding& sender : findings) {
    const auto is_other_end = [&sender](const Finding& one) {
      return one.rule->name == "no-message" && one.path.flow->number == sender.path.flow->number &&
             waiter_of(one) == awaited_by(sender) && awaited_by(one) == waiter_of(sender);
    };
    if (sender.rule->name == "unacknowledged" ||
        (sender.rule->name == "no-buffer" && std::ranges::any_of(findings, is_other_end))) {
      cut.push_back(&sender);
    }
  }
  return cut;
}

Verdict verdict_of_cut(const std::vector<const Finding*>& cut) {
  std::map<std::string, std::set<std::string>> others;  // of each end
  for (const Finding* const one : cut) {
    others[waiter_of(*one)].insert(awaited_by(*one));
    others[awaited_by(*one)].insert(waiter_of(*one));
  }
  const auto is_at_both = [&](const Finding* one) { return others[waiter_of(*one)].size() > 1; };
  const auto dead = std::ranges::find_if(cut, is_at_both);
  const Finding& one = dead != cut.end() ? **dead : *cut.front();
  Verdict verdict = verdict_of(one);
  if (dead != cut.end()) {
    verdict.rule = "dead-port";
    verdict.why =
        "nothing that it sends arrives, and nothing arrives there: its port or its link is down";
  } else if (one.rule->blames_peer) {
    verdict.rule = "cut";
    verdict.why =
        "each end has waited for the other for 5 s or more: the network between drops everything; "
        "'pacecar bw' on the same path shows more";
  }
  return verdict;
}

// A NIC that has flows and no link.
std::optional<Verdict> link_down(const Job& job) {
  for (const Process& process : job.processes()) {
    for (const Nic& nic : process.nics) {
      if (!nic.link_down || nic.flows.empty()) continue;
      return Verdict{
          true,
          "dead-port",
          name_of(process),
          nic.name,
          "",
          "the kernel reports that its link is down: look at the cable and at the switch's port"};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Finding> examine(const Job& job) {
  std::vector<Finding> findings;
  for (const Process& process : job.processes()) {
    for (const Nic& nic : process.nics) {
      for (const Flow& flow : nic.flows) {
        const Path path{&job, &process, &nic, &flow};
        const Rule& rule = diagnose(path);
        if (flow.sending || rule.trouble) findings.push_back({path, &rule});
      }
    }
  }
  std::stable_sort(findings.begin(), findings.end(), worse);
  return findings;
}

std::optional<WaitedFor> waited_for(const std::vector<Finding>& findings) {
  Graph graph;
  std::set<std::string> waiting;
  for (const Finding& finding : findings) {
    if (!finding.rule->blames_peer) continue;
    graph[awaited_by(finding)].insert(waiter_of(finding));
    waiting.insert(waiter_of(finding));
  }
  if (graph.empty()) return std::nullopt;
  WaitedFor most;
  for (const auto& [awaited, waiters] : graph) {
    if (waiting.contains(awaited)) continue;
    const size_t count = all_waiters(graph, awaited).size();
    if (count > most.waiters) most = {awaited, count, false, nullptr};
  }
  if (most.waiters == 0) most = {"", waiting.size(), true, nullptr};
  for (const Finding& finding : findings) {
    if (!finding.rule->blames_peer || most.longest != nullptr) continue;
    if (most.circle || awaited_by(finding) == most.name) most.longest = &finding;
  }
  return most;
}

// A process that rarely gets a processor although the job's other processes do.
std::optional<Verdict> starved_process(const Job& job) {
  constexpr double kLeastWait = 0.25;  // of the time between two samples
  constexpr double kRarely = 0.1;      // of the time in which its threads could run
  constexpr double kTimesOthers = 3;
  const auto share = [](const Process& one) {
    return one.running / std::max(one.running + one.starved, 1e-9);
  };
  const Process* worst = nullptr;
  for (const Process& one : job.processes()) {
    if (one.starved < kLeastWait || share(one) > kRarely) continue;
    if (worst == nullptr || share(one) < share(*worst)) worst = &one;
  }
  if (worst == nullptr) return std::nullopt;
  for (const Process& other : job.processes()) {
    const bool waits = other.starved >= kLeastWait;
    if (&other != worst && waits && share(other) < kTimesOthers * share(*worst)) return {};
  }
  return Verdict{true,
                 "slow-host",
                 name_of(*worst),
                 "",
                 "",
                 fmt::format("its threads got a processor for {:.0f}% of the time in which they "
                             "could run: look on {} for other programs, its priority (nice), and "
                             "the limit of its cgroup",
                             100 * share(*worst), worst->host)};
}

Verdict conclude(const Job& job, const std::vector<Finding>& findings) {
  if (!job.silent().empty()) {
    const SilentProcess& silent = job.silent().front();
    const size_t others = job.silent().size() - 1;
    const std::string more = others == 0 ? "" : fmt::format("; {} more do not answer", others);
    return {true, "silent", name_of(silent), "", "", silent.reason + more};
  }
  if (auto down = link_down(job)) return *down;
  const std::vector<RankFinding> ranks = examine_ranks(job);
  if (!ranks.empty() && decides(ranks.front(), findings)) return verdict_of_rank(ranks.front());
  const bool trouble = !findings.empty() && findings.front().rule->trouble;
  if (auto starved = starved_process(job); starved && !trouble) return *starved;
  if (findings.empty() || severity(findings.front()) + 1 == rules().size()) {
    return {false, "", "", "", "", "nothing is wrong, and no flow has more to send"};
  }
  const Finding& worst = findings.front();
  if (const auto cut = cut_paths(findings); !cut.empty() && worst.rule->name != "fault") {
    return verdict_of_cut(cut);
  }
  if (worst.rule->blames_peer) return verdict_of_waiting(job, *waited_for(findings));
  return verdict_of(worst);
}

}  // namespace pacecar::doctor
