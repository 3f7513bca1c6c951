// HardwareCounters: what a port has counted since we opened it: retransmissions, packets out of
// sequence, CNPs, bad checksums and all other counters of its driver in sysfs. The names are the
// driver's own.
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
  // `folder` holds one file per counter; a device without such counters has none.
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
