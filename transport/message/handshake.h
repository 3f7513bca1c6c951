// The handshake of a connection: the sender's offer and the receiver's answer, carried by the
// bootstrap. Decoding refuses whatever encoding does not write.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/nic/nic.h"

namespace pacecar {

// Largest eager message that anybody may offer.
constexpr uint32_t kMaxEager = 1U << 16;

// Identifies one opened NIC of one process: random, so that no two are the same.
using NicIdentity = std::array<uint8_t, 16>;

// A place in registered memory, as peers address it.
struct RemotePlace {
  uint64_t address = 0;
  uint32_t key = 0;
};

inline RemotePlace place_of(const MemoryRegion& region, const uint8_t* byte) {
  return {region.remote(byte), region.key};
}
inline RemotePlace place_of(const MemoryRegion& region) {
  return {region.remote_address, region.key};
}

// How to reach one end of a flow.
struct FlowEnd {
  QueuePairAddress data;
  QueuePairAddress control;
  RemotePlace words;  // its FlowWords::in
};

// The allocator whose grants a sender obeys, padded with zeros.
using AllocatorName = std::array<uint8_t, 16>;
AllocatorName allocator_name(std::string_view name);

struct Offer {
  NicIdentity sender{};
  uint64_t flow = 0;    // the sender's number of the flow
  bool joined = false;  // the sender has joined the flow: a receiver without it has ended it
  AllocatorName obeys{};
  uint32_t weight = 1;  // the connection's; the flow has the largest of its connections'
  uint32_t eager = 0;   // bytes of the largest eager message that it may send; 0: none
  // The connection's number in the flow, below Immediate::kMaxConnections: what was sent under this
  // number before has arrived or never will. Of two offers with the same number the one with the
  // higher count is newer, and the other is void.
  uint32_t number = 0;
  uint64_t count = 0;
  FlowEnd end;
  RemotePlace table;  // the connection's SendTable
};

struct Answer {
  FlowEnd end;
  uint32_t eager = 0;  // as the offer's, and not more than that
  RemotePlace table;   // the connection's ReceiveTable, and behind it the eager cells
};

std::vector<uint8_t> encode(const Offer& offer);
std::vector<uint8_t> encode(const Answer& answer);
// Errors: kPeer.
Result<Offer> decode_offer(std::span<const uint8_t> bytes);
Result<Answer> decode_answer(std::span<const uint8_t> bytes);

}  // namespace pacecar
