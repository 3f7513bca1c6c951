// What a packet I/O learns from telemetry and trimming of data packets.
#include "transport/io/switch_traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/base/prng.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"
#include "transport/wire/telemetry_tail.h"

namespace pacecar::test::switch_traces_test {
namespace {

using Datagram = std::vector<uint8_t>;

Datagram data_packet(size_t payload_bytes) {
  Datagram packet(wire::kDataHeaderBytes + payload_bytes + wire::kChecksumBytes, 0xAA);
  const wire::DataHeader header{.destination_qp = 1,
                                .length = static_cast<uint32_t>(payload_bytes)};
  wire::encode(header, std::span(packet).first<wire::kDataHeaderBytes>());
  return packet;
}

std::vector<TelemetryHop> some_hops(size_t count) {
  std::vector<TelemetryHop> hops;
  for (uint32_t i = 1; i <= count; ++i) hops.push_back({i, 10 * i, 100 * i, 1000 * i});
  return hops;
}

Datagram with_tail(Datagram packet, const std::vector<TelemetryHop>& hops) {
  const size_t bytes = wire::telemetry_tail_bytes(hops.size());
  packet.resize(packet.size() + bytes);
  wire::encode_telemetry_tail(hops, std::span(packet).last(bytes));
  return packet;
}

TEST(SwitchTraces, TelemetryIsRemovedFromItsPacket) {
  const Datagram plain = data_packet(100);
  std::vector<Datagram> bytes = {plain};
  for (size_t hops = 1; hops <= kMaxTelemetryHops; ++hops) {
    bytes.push_back(with_tail(plain, some_hops(hops)));
  }
  std::vector<RxPacket> packets;
  for (const Datagram& one : bytes) packets.push_back({.bytes = one});
  SwitchTraces traces;
  for (int burst = 0; burst < 2; ++burst) {
    for (size_t i = 0; i < packets.size(); ++i) packets[i] = {.bytes = bytes[i]};
    traces.read(packets);
    for (size_t hops = 0; hops < packets.size(); ++hops) {
      EXPECT_TRUE(std::ranges::equal(packets[hops].bytes, plain));
      EXPECT_TRUE(std::ranges::equal(packets[hops].telemetry, some_hops(hops)));
      EXPECT_FALSE(packets[hops].trimmed);
    }
  }
}

TEST(SwitchTraces, AHeaderAloneIsATrimmedPacket) {
  Datagram cut = data_packet(100);
  cut.resize(wire::kDataHeaderBytes);
  const Datagram empty = data_packet(0);
  std::array<RxPacket, 2> packets = {RxPacket{.bytes = cut}, RxPacket{.bytes = empty}};
  SwitchTraces traces;
  traces.read(packets);
  EXPECT_TRUE(packets[0].trimmed);
  EXPECT_FALSE(packets[1].trimmed);
}

TEST(SwitchTraces, PacketsWithoutAValidTailAreUnchanged) {
  Datagram acknowledgement = with_tail(data_packet(100), some_hops(1));
  acknowledgement[0] = static_cast<uint8_t>(wire::Opcode::kAck);
  // Tails that no switch writes: too many hops, a rate of 0, longer than the packet has room for.
  Datagram many = with_tail(data_packet(400), some_hops(1));
  many.back() = kMaxTelemetryHops + 1;
  const Datagram stopped = with_tail(data_packet(100), {TelemetryHop{1, 2, 3, 0}});
  Datagram longer = with_tail(data_packet(0), some_hops(1));
  longer.back() = 2;
  std::vector<RxPacket> packets;
  const std::vector<Datagram> others = {acknowledgement, many, stopped, longer};
  for (const Datagram& bytes : others) packets.push_back({.bytes = bytes});
  const auto before = packets;
  SwitchTraces traces;
  traces.read(packets);
  for (size_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(packets[i].bytes.size(), before[i].bytes.size()) << i;
    EXPECT_TRUE(packets[i].telemetry.empty());
  }
}

TEST(SwitchTraces, RandomBytesAreNotReadBeyondTheirEnd) {
  Prng random(5);
  SwitchTraces traces;
  for (int i = 0; i < 20'000; ++i) {
    Datagram bytes(random.below(120));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next_u64());
    if (!bytes.empty()) bytes[0] = static_cast<uint8_t>(wire::Opcode::kWrite);
    if (bytes.size() >= 4 && random.chance(0.8)) {
      const std::array<uint8_t, 4> end = {0x49, 0x4E, 0x54, static_cast<uint8_t>(random.below(9))};
      std::ranges::copy(end, bytes.end() - 4);
    }
    std::array<RxPacket, 1> packets = {RxPacket{.bytes = bytes}};
    traces.read(packets);
    EXPECT_LE(packets[0].bytes.size(), bytes.size());
  }
}

}  // namespace
}  // namespace pacecar::test::switch_traces_test
