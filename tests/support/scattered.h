// Passes packets to a software NIC as a packet I/O does that receives joined datagrams directly
// into their predicted places.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/support/soft_nic_pair.h"
#include "transport/io/udp/scatter_list.h"

namespace pacecar::test {

// Packets of one joined datagram: all but the last have the size of the first. Returns how many
// were received into their predicted places.
inline size_t deliver_joined(SoftNicPair& pair, size_t to, std::span<const Datagram> packets) {
  std::vector<uint8_t> datagram;
  for (const Datagram& packet : packets) {
    datagram.insert(datagram.end(), packet.bytes.begin(), packet.bytes.end());
  }
  const size_t packet_bytes = packets[0].bytes.size();
  const Address source = test_address(static_cast<uint8_t>(2 - to));
  std::vector<RxPacket> received;
  const auto cut = [&](std::span<const uint8_t> rest) {
    while (!rest.empty()) {
      const auto packet = rest.first(std::min(packet_bytes, rest.size()));
      received.push_back({.bytes = packet, .source = &source});
      rest = rest.subspan(packet.size());
    }
  };
  size_t placed = 0;
  ScatterList list;
  std::vector<uint8_t> plain(65536);
  std::vector<uint8_t> gathered(datagram.size());
  if (const Placement placement = pair.nic(to).predict(pair.now); placement.place != nullptr) {
    auto from = datagram.cbegin();
    for (const iovec& piece : list.lay(placement, plain)) {
      const auto size =
          std::min<ptrdiff_t>(static_cast<ptrdiff_t>(piece.iov_len), datagram.cend() - from);
      std::copy_n(from, size, static_cast<uint8_t*>(piece.iov_base));
      from += size;
    }
    placed = list.placed_packets(datagram.size(), packet_bytes);
    for (size_t i = 0; i < placed; ++i) {
      received.push_back({.bytes = list.ends(i), .source = &source, .placed = list.payload(i)});
    }
    if (placed > 0) {
      cut(list.rest(datagram.size()));
    } else {
      list.gather(datagram.size(), gathered.data());
      PACECAR_CHECK(gathered == datagram);
      cut(gathered);
    }
  } else {
    cut(datagram);
  }
  pair.nic(to).on_packets(pair.now, received);
  return placed;
}

// Splits the packets that a NIC has sent at once into joined datagrams of at most `most` packets.
inline std::vector<std::vector<Datagram>> joined(const std::vector<Datagram>& sent, size_t most) {
  std::vector<std::vector<Datagram>> datagrams;
  for (const Datagram& packet : sent) {
    const bool follows =
        !datagrams.empty() && datagrams.back().size() < most &&
        datagrams.back().front().bytes.size() == datagrams.back().back().bytes.size() &&
        packet.bytes.size() <= datagrams.back().front().bytes.size();
    if (!follows) datagrams.emplace_back();
    datagrams.back().push_back(packet);
  }
  return datagrams;
}

}  // namespace pacecar::test
