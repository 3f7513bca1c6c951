// Findings as text for people and as JSON for programs. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/preflight/facts.h"
#include "bench/preflight/finding.h"

namespace pacecar::preflight {

inline constexpr int kSchemaVersion = 1;

struct TextOptions {
  bool color = false;
  bool quiet = false;  // problems only
};

// First the findings that are not problems, by check; then the problems with their cures, errors
// last; then a summary line.
std::string to_text(const Findings& findings, TextOptions options);

nlohmann::json to_json(const Finding& finding);
nlohmann::json to_json(const Findings& findings, const std::string& version);

// The facts that should be equal on all hosts of a cluster, by name: versions, firmware, rates,
// MTUs, GID indices. Unknown facts are left out.
std::map<std::string, std::string> comparable(const Facts& facts);

// Every check with its findings, for --list.
std::string list_checks();

}  // namespace pacecar::preflight
