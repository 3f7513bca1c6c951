// A range of ports for UDP and TCP, such as a firewall lets pass. Pure. Thread rule: any.
#pragma once

#include <cstdint>

namespace pacecar {

struct PortRange {
  uint16_t first = 0;  // 0: any port, which the system chooses
  uint16_t last = 0;

  // As a parameter's raw value.
  static constexpr PortRange from_raw(uint64_t raw) {
    return {static_cast<uint16_t>(raw >> 16), static_cast<uint16_t>(raw)};
  }
  constexpr uint64_t raw() const { return uint64_t{first} << 16 | last; }

  // Tries bind(port) on each port until one returns other than false; its result, or false.
  template <typename Bind>
  bool find(Bind bind) const {
    for (uint32_t port = first; port <= last; ++port) {
      if (bind(static_cast<uint16_t>(port))) return true;
    }
    return false;
  }
};

}  // namespace pacecar
