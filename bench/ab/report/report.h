// Writes the report of an experiment: one HTML file that holds its data, its plots and all that
// draws them, and that asks the network for nothing. The page's parts lie beside this file and are
// embedded at build time. Thread rule: none, it keeps no state.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "bench/ab/report/page_parts.h"
#include "transport/base/result.h"

namespace pacecar {

// `data` is the object of bench/ab/report_data.h; text in it may hold anything. Errors: kSystem
// when `path` cannot be written.
Result<void> write_report(const nlohmann::json& data, const std::string& path);

// The part `name` with each {{part}} replaced by that part, of `own` or of this folder's, and
// {{data}} by the data, so that it may stand within a script element. What replaces is not searched
// again.
std::string page_of(std::span<const PagePart> own, std::string_view name,
                    const nlohmann::json& data);

}  // namespace pacecar
