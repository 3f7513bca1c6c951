// The packet format of the software NIC. Each connection has one mode.
#pragma once

#include <cstdint>

namespace pacecar {

enum class WireMode : uint8_t {
  kExtended,  // our own: any order, many paths; only between software NICs
  kAuto,      // extended with peers that offer it, else standard RC
  kRoce,      // standard RC over RoCE v2: with every RDMA NIC that has it
};

}  // namespace pacecar
