// What every PacketIo must do, as a test suite that runs against any PacketIo. To add one, link
// the suite (tests/conformance/CMakeLists.txt) and write
//
//   INSTANTIATE_TEST_SUITE_P(MyIo, PacketIoConformance,
//                            testing::Values(PacketIoCase{"plain", make_my_world}), case_name);
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/prng.h"
#include "transport/io/packet_io.h"

namespace pacecar {

// Three ends that can all reach one another, on a network that loses nothing as long as the bytes
// on the way to one end stay below half of its caps().receive_bytes.
struct PacketIoWorld {
  // Lets a little time pass, so that packets move, and returns the new time. Objects that `step`
  // owns outlive the ends.
  std::function<Instant()> step;
  std::vector<std::unique_ptr<PacketIo>> ends;
};

struct PacketIoCase {
  const char* name;
  std::function<PacketIoWorld()> make;
};

inline void PrintTo(const PacketIoCase& value, std::ostream* out) { *out << value.name; }

inline std::string case_name(const testing::TestParamInfo<PacketIoCase>& info) {
  return info.param.name;
}

// A datagram's three parts with reproducible contents; the first four bytes are its number.
struct Letter {
  std::vector<uint8_t> header;
  std::vector<uint8_t> payload;
  std::vector<uint8_t> trailer;

  Letter(uint32_t id, size_t header_bytes, size_t payload_bytes, size_t trailer_bytes)
      : header(header_bytes), payload(payload_bytes), trailer(trailer_bytes) {
    Prng prng(id);
    for (auto* part : {&header, &payload, &trailer}) {
      for (uint8_t& byte : *part) byte = static_cast<uint8_t>(prng.next_u64());
    }
    std::memcpy(header.data(), &id, sizeof(id));
  }

  TxPacket to(const Address& destination, uint16_t path = 0,
              TrafficClass traffic_class = TrafficClass::kData) const {
    return {header, payload, trailer, &destination, path, traffic_class};
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all = header;
    all.insert(all.end(), payload.begin(), payload.end());
    all.insert(all.end(), trailer.begin(), trailer.end());
    return all;
  }
};

struct Arrival {
  std::vector<uint8_t> bytes;
  Address source;
  Ecn ecn;
};

inline uint32_t id_of(std::span<const uint8_t> bytes) {
  uint32_t id = 0;
  std::memcpy(&id, bytes.data(), std::min(bytes.size(), sizeof(id)));
  return id;
}

class PacketIoConformance : public testing::TestWithParam<PacketIoCase> {
 protected:
  PacketIo& end(size_t i) { return *world_.ends[i]; }
  const Address& address(size_t i) { return end(i).local_address(); }

  void send_all(PacketIo& from, std::span<const TxPacket> packets) {
    for (int idle = 0; !packets.empty(); ++idle) {
      ASSERT_LT(idle, kPatience) << "send() takes no more packets";
      const size_t taken = from.send(packets, now_);
      ASSERT_LE(taken, packets.size());
      packets = packets.subspan(taken);
      if (taken > 0) idle = 0;
      now_ = world_.step();
    }
  }

  // Receives `count` datagrams, at most `span` per call.
  std::vector<Arrival> collect(PacketIo& at, size_t count, size_t span = 64) {
    std::vector<Arrival> arrivals;
    std::vector<RxPacket> packets(span);
    for (int idle = 0; arrivals.size() < count && idle < kPatience; ++idle) {
      const size_t received = at.receive(packets, now_);
      EXPECT_LE(received, span);
      for (const RxPacket& packet : std::span(packets).first(received)) {
        arrivals.push_back(
            {{packet.bytes.begin(), packet.bytes.end()}, *packet.source, packet.ecn});
        idle = 0;
      }
      if (received == 0) now_ = world_.step();
    }
    EXPECT_EQ(arrivals.size(), count);
    return arrivals;
  }

  // Sends all letters from end 0 to end 1 and expects exactly them there, in any order.
  void expect_delivered(const std::vector<Letter>& letters, size_t receive_span = 64) {
    std::vector<TxPacket> packets;
    std::vector<std::vector<uint8_t>> expected;
    for (const Letter& letter : letters) {
      packets.push_back(letter.to(address(1)));
      expected.push_back(letter.bytes());
    }
    send_all(end(0), packets);
    std::vector<std::vector<uint8_t>> actual;
    for (Arrival& arrival : collect(end(1), letters.size(), receive_span)) {
      actual.push_back(std::move(arrival.bytes));
    }
    std::sort(actual.begin(), actual.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_TRUE(actual == expected) << "the datagrams differ";
  }

  static constexpr int kPatience = 3000;  // idle steps before we give up
  PacketIoWorld world_ = GetParam().make();
  Instant now_ = world_.step();
};

}  // namespace pacecar
