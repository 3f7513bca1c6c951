#include "transport/verbs/hardware_counters.h"

#include <fstream>
#include <system_error>
#include <utility>

namespace pacecar {

HardwareCounters::HardwareCounters(std::filesystem::path folder)
    : folder_(std::move(folder)), before_(read()) {}

std::filesystem::path HardwareCounters::folder_of(const std::string& device, uint32_t port) {
  return std::filesystem::path("/sys/class/infiniband") / device / "ports" / std::to_string(port) /
         "hw_counters";
}

std::vector<HardwareCounter> HardwareCounters::deltas() const {
  std::vector<HardwareCounter> deltas;
  for (const auto& [name, value] : read()) {
    const auto before = before_.find(name);
    deltas.push_back({name, value - (before == before_.end() ? 0 : before->second)});
  }
  return deltas;
}

std::map<std::string, uint64_t> HardwareCounters::read() const {
  std::map<std::string, uint64_t> values;
  std::error_code ignored;  // no folder: no counters
  for (const auto& file : std::filesystem::directory_iterator(folder_, ignored)) {
    uint64_t value = 0;
    // "lifespan" is no count: for so long the driver caches the others.
    const std::string name = file.path().filename().string();
    if (name != "lifespan" && std::ifstream(file.path()) >> value) values[name] = value;
  }
  return values;
}

}  // namespace pacecar
