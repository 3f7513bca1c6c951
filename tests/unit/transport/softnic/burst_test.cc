// Packets that arrive in one burst are taken together where they belong to one write. The result is
// the same as if each had arrived alone, whatever they are: memory, completions, counters, answers.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/nic_counters.h"
#include "tests/support/soft_nic_pair.h"
#include "tests/support/wire_reencode.h"
#include "transport/base/prng.h"

namespace pacecar::burst_test {
namespace {

using test::Datagram;
using test::SoftNicPair;
using test::TestMemory;

constexpr Bytes kMtu = 1024;
constexpr Bytes kAround = 2 * kMtu;  // registered memory before and behind the write

struct Packet : Datagram {
  Address source = test::test_address(1);
};

// A receiver to which the packets of a write are on their way. Two of them are equal.
struct Receiver {
  Receiver(Bytes bytes, bool full_checksum, bool with_immediate)
      : coverage(full_checksum ? wire::Coverage::kFull : wire::Coverage::kHeader),
        pair(config(full_checksum)),
        ends(pair.connect()),
        from(pair.memory(0, bytes, Access::kLocalRead, 3)),
        to(pair.memory(1, bytes + 2 * kAround, Access::kRemoteWrite, 100)),
        other(pair.memory(1, bytes, Access::kRemoteWrite, 50)) {
    auto write = SoftNicPair::write(from, to, bytes, 1,
                                    with_immediate ? std::optional<uint32_t>(7) : std::nullopt);
    write.remote += kAround;
    pair.post(0, ends[0], write);
    for (Datagram& sent : pair.transmit_for(0, Duration::from_us(20))) {
      packets.push_back({std::move(sent)});
    }
  }
  static SoftNicConfig config(bool full_checksum) {
    SoftNicConfig config = SoftNicPair::default_config();
    config.full_checksum = full_checksum;
    return config;
  }

  void deliver_each() {
    for (const Packet& packet : packets) pair.deliver(1, packet, packet.source);
  }
  void deliver_together() {
    std::vector<RxPacket> burst;
    for (const Packet& packet : packets) {
      burst.push_back({.bytes = packet.bytes,
                       .source = &packet.source,
                       .ecn = packet.ecn,
                       .trimmed = packet.trimmed});
    }
    pair.nic(1).on_packets(pair.now, burst);
  }
  // What the receiver answers at once, and what later.
  std::vector<std::vector<uint8_t>> answers() {
    std::vector<std::vector<uint8_t>> answers;
    for (const bool later : {false, true}) {
      if (later) answers.emplace_back();
      for (const Datagram& packet :
           later ? pair.transmit_for(1, Duration::from_us(200)) : pair.transmit(1)) {
        answers.push_back(packet.bytes);
      }
    }
    return answers;
  }

  wire::Coverage coverage;
  SoftNicPair pair;
  SoftNicPair::Ends ends;
  TestMemory& from;
  TestMemory& to;
  TestMemory& other;
  std::vector<Packet> packets;
};

// Changes one packet, or the order of all, in the same way at both receivers; returns the change.
std::string change(Receiver& receiver, Prng& random) {
  std::vector<Packet>& packets = receiver.packets;
  const size_t chosen = random.below(packets.size());
  Packet& packet = packets[chosen];
  wire::DataHeader header;
  const auto header_bytes = std::span(packet.bytes).first(wire::kDataHeaderBytes);
  if (packet.trimmed || !wire::decode_trimmed(header_bytes, header)) return "nothing";
  const std::vector<uint8_t> payload(packet.bytes.begin() + wire::kDataHeaderBytes,
                                     packet.bytes.end() - wire::kChecksumBytes);
  const auto encode = [&](const std::vector<uint8_t>& bytes) {
    packet.bytes = wire::encode_data(header, bytes, receiver.coverage);
  };
  const std::string which = " of packet " + std::to_string(chosen);
  switch (random.below(17)) {
    case 0:
      header.address = receiver.to.address(receiver.to.bytes.size() - random.below(kMtu));
      return encode(payload), "an address at the end" + which;
    case 1:
      header.address = receiver.to.address() - random.below(kMtu);
      return encode(payload), "an address before the memory" + which;
    case 2:
      header.address = ~uint64_t{0} - random.below(kMtu);
      return encode(payload), "an address that wraps" + which;
    case 3:
      header.address = receiver.other.address();
      header.key = receiver.other.region.key;
      return encode(payload), "another memory" + which;
    case 4: header.key ^= 1; return encode(payload), "the key" + which;
    case 5:
      header.length = static_cast<uint32_t>(random.below(2 * receiver.from.bytes.size()));
      return encode(payload), "the length" + which;
    case 6: header.msn += 1; return encode(payload), "the message" + which;
    case 7:
      header.psn = (header.psn + static_cast<uint32_t>(random.below(300))) & kPsnMask;
      return encode(payload), "the PSN" + which;
    case 8: header.taken_back = true; return encode({}), "is taken back" + which;
    case 9: return encode({}), "the payload" + which;
    case 10: packet.ecn = Ecn::kCongestion; return "a mark" + which;
    case 11: packet.trim(); return "the payload is trimmed" + which;
    case 12: packet.bytes[random.below(packet.bytes.size())] ^= 1; return "a bit" + which;
    case 13:
      packets.erase(packets.begin() + static_cast<ptrdiff_t>(chosen));
      return "lost: the whole" + which;
    case 14:
      packets.insert(packets.begin() + static_cast<ptrdiff_t>(random.below(packets.size())),
                     Packet(packet));
      return "again: the whole" + which;
    case 15: packet.source = test::test_address(9); return "the sender" + which;
    default: std::swap(packet, packets[random.below(packets.size())]); return "the order" + which;
  }
}

class SoftNicBurst : public testing::TestWithParam<bool> {};

TEST_P(SoftNicBurst, IsTakenAsItsPacketsOneByOne) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Prng random(seed);
    const Bytes bytes = 1 + random.below(9 * kMtu);
    const bool with_immediate = random.below(3) > 0;
    Receiver each(bytes, GetParam(), with_immediate);
    Receiver together(bytes, GetParam(), with_immediate);
    std::string changes = "seed " + std::to_string(seed);
    for (uint64_t i = random.below(4); i > 0 && !each.packets.empty(); --i) {
      const uint64_t how = random.next_u64();
      Prng one(how);
      Prng other(how);
      changes += ", " + change(each, one);
      change(together, other);
    }
    SCOPED_TRACE(changes);
    each.deliver_each();
    together.deliver_together();
    ASSERT_EQ(together.to.bytes, each.to.bytes);
    ASSERT_EQ(together.other.bytes, each.other.bytes);
    ASSERT_EQ(together.answers(), each.answers());
    EXPECT_EQ(together.pair.nic(1).counters(), each.pair.nic(1).counters());
    each.pair.collect();
    together.pair.collect();
    EXPECT_EQ(together.pair.completions[1].size(), each.pair.completions[1].size());
  }
}

INSTANTIATE_TEST_SUITE_P(Checksums, SoftNicBurst, testing::Bool(),
                         [](const auto& which) { return which.param ? "full" : "headers"; });

}  // namespace
}  // namespace pacecar::burst_test
