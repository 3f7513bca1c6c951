// simulation_bench [HOSTS...]: how fast whole runs go: the production stack at every host of a
// leaf-spine network at 400G, each host sending to one other. Prints events and packets per second
// and the memory that was resident at most. Without arguments: 1,024 to 8,192 hosts.
#include <fmt/core.h>
#include <sys/resource.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"

namespace pacecar {
namespace {

Result<RunResult> run_permutation(uint32_t hosts) {
  const auto file = parse_spec(fmt::format(R"(
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
                               "simulation_bench");
  if (!file) return tl::unexpected(file.error());
  const auto spec = make_run_spec(*file->table(), "");
  if (!spec) return tl::unexpected(spec.error());
  return run_experiment(*spec);
}

double resident_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

int bench(const std::vector<std::string>& sizes) {
  fmt::print("{:>6} {:>12} {:>10} {:>12} {:>12} {:>12}\n", "hosts", "events", "seconds",
             "M events/s", "M packets/s", "MB resident");
  for (const std::string& size : sizes) {
    const auto run =
        run_permutation(static_cast<uint32_t>(std::strtoul(size.c_str(), nullptr, 10)));
    if (!run) {
      fmt::print(stderr, "error: {}\n", run.error().message);
      return 1;
    }
    fmt::print("{:>6} {:>12} {:>10.2f} {:>12.2f} {:>12.2f} {:>12.0f}\n", size, run->events,
               run->wall_seconds, static_cast<double>(run->events) * 1e-6 / run->wall_seconds,
               static_cast<double>(run->fabric.sent) * 1e-6 / run->wall_seconds,
               resident_megabytes());
  }
  return 0;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  std::vector<std::string> sizes(argv + 1, argv + argc);
  if (sizes.empty()) sizes = {"1024", "2048", "4096", "8192"};
  return pacecar::bench(sizes);
}
