// The decoder of standard RoCE v2 with any bytes: it reads within bounds, and an accepted packet
// has the same fields after it is encoded and decoded again.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/fuzz/fuzz_target.h"
#include "transport/wire/icrc.h"
#include "transport/wire/roce.h"

namespace pacecar::roce::roce_fuzz {
namespace {

void try_decoder(std::span<const uint8_t> datagram) {
  const Address address;
  static_cast<void>(verify_icrc({address, address}, datagram));
  Packet packet;
  if (decode(datagram, packet) != Decoded::kOk) return;
  const auto* begin = packet.payload.data();
  if (!packet.payload.empty() &&
      (begin < datagram.data() ||
       begin + packet.payload.size() + kIcrcBytes > datagram.data() + datagram.size())) {
    std::abort();
  }
  std::array<uint8_t, kMaxHeaderBytes> header{};
  encode(packet, header);
  // Decodes the header again, with 4 bytes of zeros in place of the payload.
  std::array<uint8_t, kMaxHeaderBytes + 8> again{};
  const size_t size = header_bytes(packet.opcode);
  std::copy_n(header.begin(), size, again.begin());
  const size_t payload = packet.payload.empty() ? 0 : 4;
  again[1] &= 0xCF;
  Packet second;
  if (decode(std::span(again).first(size + payload + kIcrcBytes), second) != Decoded::kOk ||
      second.psn != packet.psn || second.address != packet.address ||
      second.length != packet.length || second.immediate != packet.immediate ||
      second.unreliable != packet.unreliable || second.invalidated_key != packet.invalidated_key ||
      second.syndrome != packet.syndrome || second.msn != packet.msn) {
    std::abort();
  }
}

}  // namespace

FUZZ_TARGET(roce) {
  try_decoder({data, size});
  return 0;
}

}  // namespace pacecar::roce::roce_fuzz
