#include "net_plugin/profiler/processor_time.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace pacecar::profiler {

ProcessorTime processor_time() {
  ProcessorTime sum;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "schedstat");
    ProcessorTime one;
    if (!(file >> one.run_ns >> one.waited_ns)) continue;
    sum.run_ns += one.run_ns;
    sum.waited_ns += one.waited_ns;
  }
  return sum;
}

}  // namespace pacecar::profiler
