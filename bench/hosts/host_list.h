// The hosts of --hosts: from a file, from names on the command line, or the nodes of a Slurm job.
// Pure, except read_hosts().
//
// A line of a file is HOST [addr=ADDRESS]; '#' begins a comment. Further words of MPI's host files
// (slots=8, max_slots=8, HOST:8) are ignored. HOST may be USER@HOST, and a range, gpu[01-16]
// (expand_names).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace pacecar::hosts {

inline constexpr size_t kMaxHosts = 4096;

// The names of a list as Slurm writes it: "gpu[01-16,20],login1". In their order, with repeated
// ones. A number has at least as many digits as the first of its range. Errors: kInvalidArgument.
Result<std::vector<std::string>> expand_names(std::string_view text);

struct Host {
  std::string name;     // without the user; in reports
  std::string target;   // passed to the launcher
  std::string address;  // on the network to be measured; empty: that of its NIC

  bool operator==(const Host&) const = default;
};

// Errors: kInvalidArgument (a name that is not one word, or begins with '-', which a launcher would
// take for an option).
Result<void> check_host_name(const std::string& host);

// Errors: kInvalidArgument, with the line and the name of the file, `file`.
Result<std::vector<Host>> parse_host_file(std::string_view text, std::string_view file);
// Errors: kInvalidArgument.
Result<std::vector<Host>> parse_host_words(std::string_view text);
// The value of --hosts: "slurm" (SLURM_JOB_NODELIST), the name of a file, or names. Errors also:
// kNotFound, kSystem.
Result<std::vector<Host>> read_hosts(const std::string& value);

}  // namespace pacecar::hosts
