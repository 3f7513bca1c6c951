// HardwareCounters: the counters in sysfs that a port's driver has, under the driver's names, since
// the port was opened: retransmissions, packets out of sequence, CNPs, bad checksums and others.
// Reads files. Thread rule: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "transport/nic/caps.h"

namespace pacecar {

class HardwareCounters {
 public:
  // `folder` has one file per counter. Devices without counters have no such folder.
  explicit HardwareCounters(std::filesystem::path folder)
      : folder_(std::move(folder)), before_(read()) {}

  static std::filesystem::path folder_of(const std::string& device, uint32_t port) {
    return std::filesystem::path("/sys/class/infiniband") / device / "ports" /
           std::to_string(port) / "hw_counters";
  }

  // Since construction; in the order of their names.
  std::vector<HardwareCounter> deltas() const {
    std::vector<HardwareCounter> deltas;
    for (const auto& [name, value] : read()) {
      const auto before = before_.find(name);
      // Some drivers have gauges among them, which may fall.
      deltas.push_back(
          {name, value - (before == before_.end() ? 0 : std::min(value, before->second))});
    }
    return deltas;
  }

 private:
  std::map<std::string, uint64_t> read() const {
    std::map<std::string, uint64_t> values;
    std::error_code ignored;  // no folder: no counters
    for (const auto& file : std::filesystem::directory_iterator(folder_, ignored)) {
      uint64_t value = 0;
      // "lifespan" is not a count: it is the time for which the driver caches the counters.
      const std::string name = file.path().filename().string();
      if (name != "lifespan" && std::ifstream(file.path()) >> value) values[name] = value;
    }
    return values;
  }

  std::filesystem::path folder_;
  std::map<std::string, uint64_t> before_;
};

}  // namespace pacecar
