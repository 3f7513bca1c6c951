// HardwareCounters: the counters in sysfs that a port's driver has, under the driver's names, since
// the port was opened: retransmissions, packets out of sequence, CNPs, bad checksums and others.
//
// Reads files. Thread rule: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "transport/nic/caps.h"

namespace pacecar {

class HardwareCounters {
 public:
  // `folder` has one file per counter. Devices without counters have no such folder.
  explicit HardwareCounters(std::filesystem::path folder);
  static std::filesystem::path folder_of(const std::string& device, uint32_t port);

  // Since construction; in the order of their names.
  std::vector<HardwareCounter> deltas() const;

 private:
  std::map<std::string, uint64_t> read() const;

  std::filesystem::path folder_;
  std::map<std::string, uint64_t> before_;
};

}  // namespace pacecar
