#include "bench/nccl/cpu_device/settings.h"

#include <cstdio>
#include <cstdlib>

namespace pacecar::nccl::cpu {
namespace {

int number(const char* name, int otherwise, int least, int most) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= least && value <= most) return static_cast<int>(value);
  std::fprintf(stderr, "%s=%s: give a number from %d to %d\n", name, text, least, most);
  std::exit(1);
}

}  // namespace

const Settings& settings() {
  static const Settings read{.devices = number("CPU_GPU_COUNT", 1, 1, 64),
                             .first_bus = number("CPU_GPU_BUS", 1, 1, 192),
                             .trap = number("CPU_GPU_TRAP", 0, 0, 1) == 1,
                             .log = number("CPU_GPU_LOG", 0, 0, 1) == 1,
                             .spins = number("CPU_GPU_SPIN", 0, 0, 1) == 1};
  return read;
}

}  // namespace pacecar::nccl::cpu
