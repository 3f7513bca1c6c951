// The protection of the software NIC's packets; the same at both ends of a connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pacecar {

enum class Security : uint8_t {
  kOff,      // a checksum
  kAuth,     // a tag proves a packet's sender, and that it is new
  kEncrypt,  // likewise, and the payload is encrypted
};

// The value of PACECAR_SECURITY.
constexpr std::string_view name_of(Security security) {
  constexpr std::array<std::string_view, 3> kNames = {"off", "auth", "encrypt"};
  return kNames[static_cast<size_t>(security)];
}

}  // namespace pacecar
