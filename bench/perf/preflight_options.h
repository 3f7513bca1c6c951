// The flags of `pacecar preflight`, for one host or many, and its exit codes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/perf/exit_code.h"
#include "bench/perf/hosts_flags.h"
#include "bench/preflight/finding.h"
#include "transport/base/result.h"

namespace pacecar::perf {

struct PreflightOptions {
  std::string only;
  std::string root;
  std::string peer;
  std::string bind;
  std::string json_file;
  uint64_t watch_s = 0;
  uint16_t port = 18515;  // UDP; the number of perftest's TCP port
  bool listen = false;
  bool list = false;
  bool quiet = false;
  bool no_color = false;
  HostsFlags many;
  std::vector<std::string> host_flags;  // what each of many hosts is given
};

// Either the options, or the text that --help asked for.
struct ParsedPreflight {
  PreflightOptions options;
  std::string help;
};

// arguments[0] is the subcommand. Errors: kInvalidArgument, one sentence.
Result<ParsedPreflight> parse_preflight_options(int argc, const char* const* argv);

ExitCode exit_code_of(preflight::Severity worst);

}  // namespace pacecar::perf
