#include "bench/doctor/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/cli/console.h"

namespace pacecar::doctor {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxRows = 40;
using Row = std::vector<std::string>;

Row row_of(const Finding& finding) {
  const Flow& flow = *finding.path.flow;
  return {std::string(finding.rule->name),
          name_of(*finding.path.process),
          finding.path.nic->name,
          flow.sending ? "to" : "from",
          finding.path.peer_name(),
          flow.goodput_bps ? rate_text(*flow.goodput_bps) : "-",
          flow.rtt_s > 0 ? fmt::format("{:.0f} us", flow.rtt_s * 1e6) : "-",
          flow.requests > 0 ? fmt::format("{:.1f} s", flow.still_s) : "-"};
}

// Each link that processes of a host divide, once.
std::string shared_links(const Job& job) {
  std::set<std::pair<std::string, std::string>> reported;
  std::string text;
  for (const Process& process : job.processes()) {
    for (const Nic& nic : process.nics) {
      if (nic.sharers.size() < 2 || !reported.emplace(process.host, nic.name).second) continue;
      text += fmt::format("\n{} on {} is divided among\n", nic.name, process.host);
      for (const Sharer& sharer : nic.sharers) {
        text += fmt::format("  {} (pid {}): sends {} of {}, receives {} of {}\n", sharer.program,
                            sharer.pid, rate_text(sharer.out_part_bps),
                            rate_text(sharer.out_demand_bps), rate_text(sharer.in_part_bps),
                            rate_text(sharer.in_demand_bps));
      }
    }
  }
  return text;
}

std::string verdict_text(const Verdict& verdict) {
  if (verdict.process.empty()) return fmt::format("Verdict: {}.\n", verdict.why);
  std::string text = fmt::format(
      "{}: {}\n", verdict.trouble ? "Trouble" : "Slowest, and nothing wrong", verdict.process);
  if (!verdict.nic.empty()) text += fmt::format("  NIC   {}\n", verdict.nic);
  if (!verdict.path.empty()) text += fmt::format("  path  {}\n", verdict.path);
  return text + fmt::format("  why   {}\n", verdict.why);
}

}  // namespace

std::string to_text(const Job& job, const std::vector<Finding>& findings, const Verdict& verdict) {
  std::vector<Row> rows = {{"LIMIT", "PROCESS", "NIC", "", "PEER", "GOODPUT", "RTT", "STILL FOR"}};
  for (const SilentProcess& process : job.silent()) {
    rows.push_back({"silent", name_of(process), "-", "", "-", "-", "-", "-"});
  }
  for (const Finding& finding : findings) {
    if (rows.size() > kMaxRows) break;
    rows.push_back(row_of(finding));
  }
  const size_t left = findings.size() + job.silent().size() + 1 - rows.size();
  const std::string more =
      left > 0 ? fmt::format("and {} more, nothing worse: --json has them all\n", left) : "";
  const std::string table =
      rows.size() > 1 ? fmt::format("{}\n", fmt::join(cli::aligned(rows), "\n")) : "";
  return fmt::format("{}{}{}\n{}", table, more, shared_links(job), verdict_text(verdict));
}

void add_conclusions(const std::vector<Finding>& findings, const Verdict& verdict, Json& document) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json one = {{"rule", finding.rule->name},
                {"trouble", finding.rule->trouble},
                {"process", name_of(*finding.path.process)},
                {"nic", finding.path.nic->name},
                {"direction", finding.path.flow->sending ? "send" : "receive"},
                {"peer", finding.path.peer_name()},
                {"why", finding.why()}};
    if (finding.path.flow->goodput_bps) one["goodput_bps"] = *finding.path.flow->goodput_bps;
    list.push_back(std::move(one));
  }
  document["findings"] = std::move(list);
  document["verdict"] = {{"trouble", verdict.trouble}, {"rule", verdict.rule},
                         {"process", verdict.process}, {"nic", verdict.nic},
                         {"path", verdict.path},       {"why", verdict.why}};
}

}  // namespace pacecar::doctor
