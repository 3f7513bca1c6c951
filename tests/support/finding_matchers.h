// Helpers that search preflight's findings.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

#include "bench/preflight/finding.h"

namespace pacecar::preflight {

inline std::vector<std::string> ids(const Findings& findings, Severity least = Severity::kOk) {
  std::vector<std::string> ids;
  for (const Finding& finding : findings.all()) {
    if (finding.severity >= least) ids.emplace_back(finding.id);
  }
  return ids;
}

inline std::vector<std::string> problems(const Findings& findings) {
  return ids(findings, Severity::kWarning);
}

// The first finding with this id; an empty one if there is none.
inline Finding find(const Findings& findings, std::string_view id) {
  for (const Finding& finding : findings.all()) {
    if (finding.id == id) return finding;
  }
  return {};
}

}  // namespace pacecar::preflight
