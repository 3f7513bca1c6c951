// The handshake of a connection: the sender's offer and the receiver's answer, carried by the
// bootstrap. The decode functions accept only what the encode functions produce.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/nic/nic.h"

namespace pacecar {

// Upper bound of Offer::eager and Answer::eager, in bytes.
constexpr uint32_t kMaxEager = 1U << 16;

// Identifies one opened NIC of one process: random, so that no two are equal.
using NicIdentity = std::array<uint8_t, 16>;

// A remote address and its key (rkey): what a peer needs to write into registered memory.
struct RemoteAddress {
  uint64_t address = 0;
  uint32_t key = 0;
};

inline RemoteAddress remote_address_of(const MemoryRegion& region, const uint8_t* byte) {
  return {region.remote(byte), region.key};
}
inline RemoteAddress remote_address_of(const MemoryRegion& region) {
  return {region.remote_address, region.key};
}

// How to reach one end of a flow.
struct FlowEnd {
  QueuePairAddress data;
  QueuePairAddress control;
  RemoteAddress words;  // of its FlowWords::in
};

// The name of the allocator whose grants a sender obeys, padded with zeros.
using AllocatorName = std::array<uint8_t, 16>;
AllocatorName allocator_name(std::string_view name);

struct Offer {
  NicIdentity sender{};
  uint64_t flow = 0;    // the sender's number of the flow
  bool joined = false;  // the sender has joined the flow: a receiver that lacks it has ended it
  AllocatorName obeys{};
  uint32_t weight = 1;  // of the connection; the flow has its connections' largest weight
  uint32_t eager = 0;   // bytes of the largest eager message that it may send; 0: none
  // The connection's number in the flow, below Immediate::kMaxConnections. The sender reuses a
  // number only when all writes of the former connection are done. If two offers have the same
  // number, the one with the higher count is newer, and the other is void.
  uint32_t number = 0;
  uint64_t count = 0;
  FlowEnd end;
  RemoteAddress table;  // the connection's SendTable
};

struct Answer {
  FlowEnd end;
  uint32_t eager = 0;   // as Offer::eager, and not more than offered
  RemoteAddress table;  // the connection's ReceiveTable, and behind it the eager cells
};

std::vector<uint8_t> encode(const Offer& offer);
std::vector<uint8_t> encode(const Answer& answer);
Result<Offer> decode_offer(std::span<const uint8_t> bytes);    // Errors: kPeer.
Result<Answer> decode_answer(std::span<const uint8_t> bytes);  // Errors: kPeer.

}  // namespace pacecar
