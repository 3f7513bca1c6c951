// `pacecar preflight` on this host: its flags, which --hosts shares, and its exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "bench/perf/console.h"
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
};

void add_preflight_flags(CLI::App& app, PreflightOptions& flags);

// Examines this host, or listens for the probes of another one. Returns an ExitCode.
Result<int> preflight_this_host(const PreflightOptions& flags, const Console& console);

ExitCode exit_code_of(preflight::Severity worst);

}  // namespace pacecar::perf
