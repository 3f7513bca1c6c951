// Program, machine and settings of a run, as every record has them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pacecar::ab {

// {version, commit, date, kernel, host, cpu, cpus, compiler, command_line, environment}; of the
// environment only PACECAR_* and NCCL_*.
nlohmann::json provenance(const std::string& command_line);

}  // namespace pacecar::ab
