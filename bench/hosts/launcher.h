// How a command gets to another host: ssh, srun, kubectl, or a template of the user's. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/hosts/host_list.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

// For a POSIX shell: as it is where nothing in it is special.
std::string shell_quoted(const std::string& word);
// A line of words as a shell reads it, with quotes and backslashes and nothing else. Errors:
// kInvalidArgument (a quote without end).
Result<std::vector<std::string>> shell_words(const std::string& line);

class Launcher {
 public:
  // "ssh", "srun", "kubectl", or words of which {host} stands for the host (none: behind the last
  // word) and {command} for the whole command, quoted (none: its words follow). Errors:
  // kInvalidArgument.
  static Result<Launcher> parse(const std::string& text);

  // The local command that runs `words` on the host. ssh passes them to a shell there, so they are
  // quoted.
  std::vector<std::string> command(const Host& host, std::span<const std::string> words) const;

  const std::string& program() const { return words_.front(); }

 private:
  explicit Launcher(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<std::string> words_;
};

}  // namespace pacecar::hosts
