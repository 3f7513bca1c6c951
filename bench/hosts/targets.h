// The hosts of --hosts: from a file, from names on the command line, or the nodes of a Slurm job;
// and the local command that runs a command there. Pure, except read_hosts() and targets_of().
//
// A line of a file is HOST [addr=ADDRESS]; '#' begins a comment. Further words of MPI's host files
// (slots=8, max_slots=8, HOST:8) are ignored. HOST may be USER@HOST, and a range, gpu[01-16]
// (expand_names).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cli/command_line.h"
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

// ssh, srun, kubectl, or a command of the user.
class Launcher {
 public:
  // "ssh", "srun", "kubectl", or a command line with {host} for the host (default: as its last
  // word) and {command} for the whole command as one quoted word (default: its words follow).
  // Errors: kInvalidArgument.
  static Result<Launcher> parse(const std::string& text);

  // The local command that runs `words` on the host. They are quoted for ssh, which passes them to
  // a shell there.
  std::vector<std::string> command(const Host& host, std::span<const std::string> words) const;

  const std::string& program() const { return words_.front(); }

 private:
  explicit Launcher(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<std::string> words_;
};

struct Targets {
  std::vector<Host> hosts;
  Launcher launcher;
};

// Errors: as for read_hosts() and Launcher::parse().
Result<Targets> targets_of(const cli::HostsFlags& flags);

}  // namespace pacecar::hosts
