// PacketStore: every packet has the room that was asked for, also when its memory is reused.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "transport/sim/fabric_packet.h"

namespace pacecar::packet_store_test {
namespace {

constexpr Bytes kSmall = 50;
constexpr Bytes kLarge = 700;

void fill(const FabricPacket& packet, Bytes bytes, uint8_t value) {
  std::fill_n(packet.memory, bytes, value);
}
bool holds(const FabricPacket& packet, Bytes bytes, uint8_t value) {
  return std::all_of(packet.memory, packet.memory + bytes,
                     [value](uint8_t byte) { return byte == value; });
}

TEST(PacketStore, PacketsShareNoMemory) {
  PacketStore store(kLarge, true);
  std::vector<FabricPacket*> packets;
  for (int i = 0; i < 3000; ++i) {
    FabricPacket& packet = store.take(i % 3 == 0 ? kLarge : kSmall);
    fill(packet, i % 3 == 0 ? kLarge : kSmall, static_cast<uint8_t>(i));
    std::fill_n(store.telemetry(packet), kMaxTelemetryHops,
                TelemetryHop{.time_ns = static_cast<uint32_t>(i)});
    packets.push_back(&packet);
  }
  EXPECT_EQ(std::set(packets.begin(), packets.end()).size(), packets.size());
  EXPECT_EQ(store.in_use(), packets.size());
  for (size_t i = 0; i < packets.size(); ++i) {
    EXPECT_TRUE(holds(*packets[i], i % 3 == 0 ? kLarge : kSmall, static_cast<uint8_t>(i))) << i;
    for (size_t hop = 0; hop < kMaxTelemetryHops; ++hop) {
      EXPECT_EQ(store.telemetry(*packets[i])[hop].time_ns, i);
    }
  }
}

TEST(PacketStore, ReturnedPacketIsReusedForItsSize) {
  PacketStore store(kLarge, false);
  FabricPacket& first = store.take(kSmall);
  FabricPacket& second = store.take(kLarge);
  store.give_back(first);
  store.give_back(second);
  EXPECT_EQ(&store.take(kSmall), &first);
  EXPECT_EQ(&store.take(kLarge), &second);
}

// A queue may swap two packets together with their memory.
TEST(PacketStore, SwappedPacketsKeepTheRoomOfTheirMemory) {
  PacketStore store(kLarge, false);
  FabricPacket& small = store.take(kSmall);
  FabricPacket& large = store.take(kLarge);
  std::swap(small, large);
  store.give_back(small);
  store.give_back(large);
  FabricPacket& again = store.take(kLarge);
  FabricPacket& other = store.take(kSmall);
  fill(again, kLarge, 1);
  fill(other, kSmall, 2);
  EXPECT_TRUE(holds(again, kLarge, 1));
  EXPECT_EQ(&again, &small) << "this packet has the large memory now";
}

}  // namespace
}  // namespace pacecar::packet_store_test
