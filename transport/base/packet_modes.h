// How the software NIC protects its packets, and their format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pacecar {

// The same at both ends of a connection.
enum class Security : uint8_t {
  kOff,      // a checksum
  kAuth,     // a tag proves a packet's sender, and that it is new
  kEncrypt,  // the tag of kAuth, and the payload is encrypted
};

// The value of PACECAR_SECURITY.
constexpr std::string_view name_of(Security security) {
  constexpr std::array<std::string_view, 3> kNames = {"off", "auth", "encrypt"};
  return kNames[static_cast<size_t>(security)];
}

// A software NIC's packet formats (PACECAR_WIRE): extended or standard RC; kAuto: the peer decides.
enum class WireMode : uint8_t {
  kExtended,  // our own: any order, many paths; only between software NICs
  kAuto,      // extended with peers that offer it, else standard RC
  kRoce,      // standard RC over RoCE v2: also with RDMA NICs
};

}  // namespace pacecar
