// The findings, as text and as JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/doctor/verdict.h"

namespace pacecar::doctor {

// A table, worst first, and the verdict.
std::string to_text(const Job& job, const std::vector<Finding>& findings, const Verdict& verdict);

// Adds the members "findings" and "verdict".
void add_conclusions(const std::vector<Finding>& findings, const Verdict& verdict,
                     nlohmann::json& document);

}  // namespace pacecar::doctor
