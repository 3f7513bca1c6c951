// Program, machine and settings of a run, as every record has them; quoting for shells.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace pacecar::ab {

// {version, commit, date, kernel, host, cpu, cpus, compiler, command_line, environment}; of the
// environment only PACECAR_* and NCCL_*.
nlohmann::json provenance(const std::string& command_line);

// A word quoted for a shell.
std::string shell_quoted(const std::string& word);
// Words quoted for a shell, with a blank between them.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace pacecar::ab
