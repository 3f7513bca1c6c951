// The findings, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/doctor/verdict.h"

namespace pacecar::doctor {

// A table, worst first, and the verdict.
std::string to_text(const Job& job, const std::vector<Finding>& findings, const Verdict& verdict);

// Adds "findings" and "verdict" to what was gathered.
void add_conclusions(const std::vector<Finding>& findings, const Verdict& verdict,
                     nlohmann::json& document);

}  // namespace pacecar::doctor
