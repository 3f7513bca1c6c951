// How large RDMA packets may be on an Ethernet interface. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace pacecar::preflight {

// What drivers subtract from an interface's MTU for headers before they round down to an RDMA MTU:
// GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4 (Linux, include/rdma/ib_addr.h, iboe_get_mtu).
inline constexpr uint64_t kRoceHeaders = 96;

// InfiniBand Architecture Specification, MTU encodings; largest first.
inline constexpr std::array<uint64_t, 5> kRdmaMtus = {4096, 2048, 1024, 512, 256};

// The RDMA MTU that fits into packets of `ip_bytes`, or 0.
constexpr uint64_t rdma_mtu(uint64_t ip_bytes) {
  for (const uint64_t mtu : kRdmaMtus) {
    if (mtu + kRoceHeaders <= ip_bytes) return mtu;
  }
  return 0;
}

}  // namespace pacecar::preflight
