// Program, machine and settings of a run, as every record has them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pacecar::ab {

// The source that this program was built from, as git describes it: "-dirty" with uncommitted
// changes; "unknown" without a repository.
std::string_view build_commit();
std::string_view build_version();
std::string_view build_compiler();

// {version, commit, date, kernel, host, cpu, cpus, compiler, command_line, environment}; of the
// environment only PACECAR_* and NCCL_*.
nlohmann::json provenance(const std::string& command_line);

}  // namespace pacecar::ab
