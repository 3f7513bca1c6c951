// The local command that runs a command on another host: ssh, srun, kubectl, or the user's own.
// Pure.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/hosts/host_list.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

// Splits a line into words as a shell does, with quotes and backslashes, but no expansions. Errors:
// kInvalidArgument (a quote without end).
Result<std::vector<std::string>> shell_words(const std::string& line);

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

}  // namespace pacecar::hosts
