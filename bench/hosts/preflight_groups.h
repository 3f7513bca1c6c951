// Findings of preflight on many hosts: equal findings once, with the hosts that have them, and
// facts that should be equal but differ. Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/preflight/finding.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

struct HostReport {
  std::string host;
  std::vector<preflight::Finding> findings;  // their ids are known ones
  std::map<std::string, std::string> facts;
  nlohmann::json document = {};  // the whole report, as it was printed
};

// From the output of `pacecar preflight --json`. Errors: kPeer.
Result<HostReport> read_report(const std::string& host, const std::string& text);

using Names = std::vector<std::string>;  // of hosts, in the order of the reports

struct Group {
  preflight::Finding finding;
  Names hosts;  // that have it
};
// Warnings, then errors; within each severity, the finding of most hosts comes last.
std::vector<Group> group_findings(const std::vector<HostReport>& reports);

// A fact that differs, and the hosts with each value, the most frequent first. Facts that fewer
// than half of the hosts have are ignored.
struct Difference {
  std::string fact;
  std::vector<std::pair<std::string, Names>> values;
};
std::vector<Difference> find_differences(const std::vector<HostReport>& reports);

// "all 16 hosts", "14 of 16 hosts (not gpu03, gpu09)", "gpu03, gpu09".
std::string who(const Names& hosts, const std::vector<HostReport>& reports);

std::string to_text(const std::vector<HostReport>& reports, size_t hosts);
preflight::Severity worst_of(const std::vector<HostReport>& reports);

}  // namespace pacecar::hosts
