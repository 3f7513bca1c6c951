// simulation_bench [HOSTS...]: measures the speed of whole simulations (README.md), each size in a
// new process.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

Result<RunResult> run_permutation(uint32_t hosts) {
  ASSIGN_OR_RETURN(const auto file, parse_spec(fmt::format(R"(
[topology]
hosts = {}
rate = "400G"
[workload]
kind = "permutation"
bytes = "1MB"
[transport]
cc = "swift"
[run]
sample_interval = 0
)",
                                                           hosts),
                                               "simulation_bench"));
  ASSIGN_OR_RETURN(const auto spec, make_run_spec(*file.table(), ""));
  return run_experiment(spec);
}

// In this process. The trace hash shows whether two builds simulate the same.
bool measure(const std::string& size) {
  const auto run = run_permutation(static_cast<uint32_t>(std::strtoul(size.c_str(), nullptr, 10)));
  if (!run) {
    fmt::print(stderr, "error: {}\n", run.error().message);
    return false;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double seconds = run->loop_cpu_seconds;
  fmt::print("{:>6} {:>12} {:>9.2f} {:>9.2f} {:>12.2f} {:>12.2f} {:>12.0f} {:>18x}\n", size,
             run->events, run->set_up_cpu_seconds, seconds,
             static_cast<double>(run->events) * 1e-6 / seconds,
             static_cast<double>(run->fabric.sent) * 1e-6 / seconds,
             static_cast<double>(usage.ru_maxrss) / 1024, run->trace_hash);
  return true;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  std::vector<std::string> sizes(argv + 1, argv + argc);
  if (sizes.empty()) sizes = {"128", "1024", "4096", "8192"};
  fmt::print("{:>6} {:>12} {:>9} {:>9} {:>12} {:>12} {:>12} {:>18}\n", "hosts", "events",
             "set-up s", "loop s", "M events/s", "M packets/s", "MB resident", "trace hash");
  std::fflush(stdout);
  for (const std::string& size : sizes) {
    const pid_t child = fork();
    if (child == 0) {
      const bool measured = pacecar::measure(size);
      std::fflush(stdout);
      _exit(measured ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) return 1;
  }
  return 0;
}
