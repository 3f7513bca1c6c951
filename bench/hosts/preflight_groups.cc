#include "bench/hosts/preflight_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "bench/cli/json_fields.h"
#include "transport/base/printable.h"

namespace pacecar::hosts {
namespace {

using Json = nlohmann::json;
using preflight::Finding;
using preflight::Severity;

constexpr size_t kNamedHosts = 8;  // more are counted

tl::unexpected<Error> not_a_report() {
  return fail(ErrorCode::kPeer,
              "its output is not of this version of pacecar preflight: install the same one");
}

// Known ids outlive the text they were read from.
const preflight::FindingKind* kind_of(const std::string& id) {
  constexpr auto& kKinds = preflight::kFindingKinds;
  const auto found = std::ranges::find(kKinds, id, &preflight::FindingKind::id);
  return found == kKinds.end() ? nullptr : found;
}

auto key_of(const Finding& finding) {
  return std::tie(finding.severity, finding.id, finding.subject, finding.message);
}

std::string line_of(const Group& group, const std::vector<HostReport>& reports) {
  const Finding& finding = group.finding;
  std::string text =
      fmt::format("{:<7}  on {}: {}{}{}\n", to_string(finding.severity), who(group.hosts, reports),
                  finding.subject, finding.subject.empty() ? "" : ": ", finding.message);
  if (!finding.cure.empty()) text += fmt::format("         cure: {}\n", finding.cure);
  return text;
}

std::string line_of(const Difference& difference, const std::vector<HostReport>& reports) {
  std::vector<std::string> parts;
  for (const auto& [value, hosts] : difference.values) {
    parts.push_back(fmt::format("{} on {}", value, who(hosts, reports)));
  }
  return fmt::format("differs  {}: {}\n", difference.fact, fmt::join(parts, "; "));
}

size_t hosts_with(const std::vector<HostReport>& reports, Severity severity) {
  return static_cast<size_t>(std::ranges::count_if(reports, [&](const HostReport& report) {
    return std::ranges::any_of(
        report.findings, [&](const Finding& finding) { return finding.severity == severity; });
  }));
}

}  // namespace

Result<HostReport> read_report(const std::string& host, const std::string& text) try {
  HostReport report{.host = host, .findings = {}, .facts = {}, .document = cli::parse_json(text)};
  for (const Json& one : report.document.at("findings")) {
    const auto* kind = kind_of(one.at("id").get<std::string>());
    if (kind == nullptr) return not_a_report();
    report.findings.push_back({kind->id, kind->severity,
                               printable(one.at("subject").get<std::string>()),
                               printable(one.at("message").get<std::string>()),
                               printable(one.at("cure").get<std::string>())});
  }
  for (const auto& [name, value] : report.document.at("facts").items()) {
    report.facts[printable(name)] = printable(value.get<std::string>());
  }
  return report;
} catch (const Json::exception&) {
  return not_a_report();
}

std::vector<Group> group_findings(const std::vector<HostReport>& reports) {
  std::vector<Group> groups;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) {
      if (finding.severity < Severity::kWarning) continue;
      const auto same = std::ranges::find_if(
          groups, [&](const Group& group) { return key_of(group.finding) == key_of(finding); });
      if (same == groups.end()) {
        groups.push_back({finding, {report.host}});
      } else if (same->hosts.back() != report.host) {
        same->hosts.push_back(report.host);
      }
    }
  }
  std::ranges::stable_sort(groups, [](const Group& a, const Group& b) {
    return std::pair(a.finding.severity, a.hosts.size()) <
           std::pair(b.finding.severity, b.hosts.size());
  });
  return groups;
}

std::vector<Difference> find_differences(const std::vector<HostReport>& reports) {
  std::map<std::string, std::map<std::string, Names>> facts;
  for (const HostReport& report : reports) {
    for (const auto& [name, value] : report.facts) facts[name][value].push_back(report.host);
  }
  std::vector<Difference> differences;
  for (auto& [name, values] : facts) {
    size_t holders = 0;
    for (const auto& [value, hosts] : values) holders += hosts.size();
    if (values.size() < 2 || 2 * holders < reports.size()) continue;
    Difference difference{name, {values.begin(), values.end()}};
    std::ranges::stable_sort(difference.values, [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    differences.push_back(std::move(difference));
  }
  return differences;
}

std::string who(const Names& hosts, const std::vector<HostReport>& reports) {
  if (hosts.size() == reports.size()) {
    return reports.size() == 1 ? reports[0].host : fmt::format("all {} hosts", reports.size());
  }
  if (2 * hosts.size() <= reports.size() && hosts.size() <= kNamedHosts) {
    return fmt::format("{}", fmt::join(hosts, ", "));
  }
  Names others;
  for (const HostReport& report : reports) {
    if (std::ranges::find(hosts, report.host) == hosts.end()) others.push_back(report.host);
  }
  const std::string part = fmt::format("{} of {} hosts", hosts.size(), reports.size());
  if (others.size() <= kNamedHosts && others.size() < hosts.size()) {
    return fmt::format("{} (not {})", part, fmt::join(others, ", "));
  }
  const auto named = std::span(hosts).first(std::min(hosts.size(), kNamedHosts));
  return fmt::format("{} ({}{})", part, fmt::join(named, ", "),
                     named.size() < hosts.size() ? ", ..." : "");
}

std::string to_text(const std::vector<HostReport>& reports, size_t hosts) {
  std::string text;
  for (const Difference& difference : find_differences(reports)) {
    text += line_of(difference, reports);
  }
  const std::vector<Group> groups = group_findings(reports);
  if (!text.empty() && !groups.empty()) text += "\n";
  for (const Group& group : groups) text += line_of(group, reports);
  if (!text.empty()) text += "\n";
  const size_t errors = hosts_with(reports, Severity::kError);
  const size_t warnings = hosts_with(reports, Severity::kWarning);
  if (errors > 0) {
    return text + fmt::format("Not ready: {} of {} hosts with errors.\n", errors, hosts);
  }
  if (warnings > 0) {
    return text + fmt::format("Ready, with warnings on {} of {} hosts.\n", warnings, hosts);
  }
  return text + fmt::format("Ready: {} of {} hosts.\n", reports.size(), hosts);
}

Severity worst_of(const std::vector<HostReport>& reports) {
  Severity worst = Severity::kOk;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) worst = std::max(worst, finding.severity);
  }
  return worst;
}

}  // namespace pacecar::hosts
