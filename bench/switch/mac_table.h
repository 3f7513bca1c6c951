// The port of each MAC address, learned from received frames. Bounded: a full table learns nothing
// new, and frames to unknown addresses go to all ports. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "bench/switch/frame_headers.h"

namespace pacecar {

class MacTable {
 public:
  static constexpr size_t kCapacity = 4096;

  MacTable() { ports_.reserve(kCapacity); }

  // An address that has moved is found at its new port.
  void learn(MacNumber address, uint32_t port) {
    if (is_group(address)) return;
    if (const auto known = ports_.find(address); known != ports_.end()) {
      known->second = port;
    } else if (ports_.size() < kCapacity) {
      ports_.emplace(address, port);
    }
  }
  std::optional<uint32_t> find(MacNumber address) const {
    const auto known = ports_.find(address);
    return known == ports_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  std::unordered_map<MacNumber, uint32_t> ports_;
};

}  // namespace pacecar
