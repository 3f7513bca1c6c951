#include "transport/state/processor_time.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace pacecar {

ProcessorTime processor_time() {
  ProcessorTime sum;
  std::error_code error;
  std::filesystem::directory_iterator thread("/proc/self/task", error);
  for (; thread != end(thread); thread.increment(error)) {  // an error ends it
    std::ifstream file(thread->path() / "schedstat");
    ProcessorTime one;
    if (!(file >> one.run_ns >> one.waited_ns)) continue;
    sum.run_ns += one.run_ns;
    sum.waited_ns += one.waited_ns;
  }
  return sum;
}

}  // namespace pacecar
