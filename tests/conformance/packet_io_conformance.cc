#include "tests/conformance/packet_io_conformance.h"

namespace pacecar {

TEST_P(PacketIoConformance, PacketsComeFromTheReportedSourcePorts) {
  const auto ports = source_ports(end(0));
  ASSERT_EQ(ports.size(), end(0).caps().paths + 1);
  const Letter letter(1, 16, 100, 4);
  for (uint16_t path = 0; path < end(0).caps().paths; ++path) {
    const TxPacket packet = letter.to(address(1), path);
    send_all(end(0), {&packet, 1});
    const auto arrived = collect(end(1), 1);
    ASSERT_EQ(arrived.size(), 1U);
    EXPECT_EQ(arrived[0].source.port, ports[path]);
  }
  const TxPacket word = letter.to(address(1), 0, TrafficClass::kControl);
  send_all(end(0), {&word, 1});
  const auto arrived = collect(end(1), 1);
  ASSERT_EQ(arrived.size(), 1U);
  EXPECT_EQ(arrived[0].source.port, ports.back());
}

TEST_P(PacketIoConformance, ReportsUsableCaps) {
  for (const auto& io : world_.ends) {
    EXPECT_GE(io->caps().datagram_bytes, 256U);
    if (io->caps().burst_bytes != 0) {  // 0: single packets only
      EXPECT_GE(io->caps().burst_bytes, io->caps().datagram_bytes);
    }
    EXPECT_GE(io->caps().receive_bytes, 2 * io->caps().datagram_bytes);
    EXPECT_GE(io->caps().paths, 2U);
    EXPECT_NE(io->local_address().port, 0);
  }
  EXPECT_NE(address(0), address(1));
}

TEST_P(PacketIoConformance, IdleEndReceivesNothing) {
  std::vector<RxPacket> packets(8);
  EXPECT_EQ(end(0).send({}, now_), 0U);
  EXPECT_EQ(end(0).receive(packets, now_), 0U);
}

TEST_P(PacketIoConformance, GathersHeaderPayloadAndTrailer) {
  expect_delivered({{1, 40, 100, 4}, {2, 40, 0, 4}, {3, 40, 100, 0}, {4, 40, 0, 0}, {5, 40, 1, 1}});
}

TEST_P(PacketIoConformance, DeliversABurstOfEqualDatagrams) {
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 100; ++id) letters.emplace_back(id, 40, 156, 4);
  expect_delivered(letters);
}

TEST_P(PacketIoConformance, DeliversNeighboursInMemory) {
  // Headers and trailers in one slab, payloads in one buffer: nothing may be mixed up.
  constexpr size_t kCount = 20, kHeader = 40, kPayload = 128, kTrailer = 4;
  std::vector<uint8_t> slab, payloads;
  for (uint32_t id = 0; id < kCount; ++id) {
    const Letter letter(id, kHeader, kPayload, kTrailer);
    slab.insert(slab.end(), letter.header.begin(), letter.header.end());
    slab.insert(slab.end(), letter.trailer.begin(), letter.trailer.end());
    payloads.insert(payloads.end(), letter.payload.begin(), letter.payload.end());
  }
  std::vector<TxPacket> packets(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const auto ours = std::span<const uint8_t>(slab).subspan(i * (kHeader + kTrailer));
    packets[i].header = ours.first(kHeader);
    packets[i].trailer = ours.subspan(kHeader, kTrailer);
    // Every third packet has no payload, as an acknowledgement: header and trailer are adjacent.
    if (i % 3 != 0) packets[i].payload = std::span(payloads).subspan(i * kPayload, kPayload);
    packets[i].destination = &address(1);
  }
  send_all(end(0), packets);
  for (const Arrival& arrival : collect(end(1), kCount)) {
    const uint32_t id = id_of(arrival.bytes);
    ASSERT_LT(id, kCount);
    Letter letter(id, kHeader, kPayload, kTrailer);
    if (id % 3 == 0) letter.payload.clear();
    EXPECT_TRUE(arrival.bytes == letter.bytes()) << id;
  }
}

TEST_P(PacketIoConformance, DeliversMixedSizes) {
  Prng prng(7);
  std::vector<Letter> letters;
  size_t budget = end(1).caps().receive_bytes / 2;
  const size_t largest = std::min<size_t>(end(0).caps().datagram_bytes - 44, 9000);
  for (uint32_t id = 0; id < 60; ++id) {
    const size_t payload = id % 5 == 0 ? 0 : prng.below(largest + 1);
    if (budget < payload + 1024) break;
    budget -= payload + 1024;
    letters.emplace_back(id, 40, payload, 4);
  }
  ASSERT_GT(letters.size(), 1U);
  expect_delivered(letters);
}

TEST_P(PacketIoConformance, DeliversTheLargestDatagram) {
  const size_t largest = end(0).caps().datagram_bytes;
  expect_delivered({{1, 40, largest - 44, 4}, {2, 40, largest - 45, 4}});
}

TEST_P(PacketIoConformance, RefusesOrLosesADatagramThatIsTooLong) {
  const Letter long_letter(1, 40, end(0).caps().datagram_bytes - 43, 4);
  const Letter good_letter(2, 40, 10, 4);
  const TxPacket packet = long_letter.to(address(1));
  (void)end(0).send({&packet, 1}, now_);
  expect_delivered({good_letter});
}

TEST_P(PacketIoConformance, KeepsDestinationsAndPathsApart) {
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 90; ++id) letters.emplace_back(id, 40, id % 3 == 0 ? 100 : 60, 4);
  std::vector<TxPacket> packets;
  const uint32_t paths = end(0).caps().paths;
  for (uint32_t id = 0; id < letters.size(); ++id) {
    packets.push_back(letters[id].to(address(1 + id / 2 % 2), static_cast<uint16_t>(id / 4 % paths),
                                     id % 10 == 9 ? TrafficClass::kControl : TrafficClass::kData));
  }
  send_all(end(0), packets);
  std::set<uint32_t> seen;
  for (const size_t at : {1U, 2U}) {
    const auto mine = [&](const TxPacket& p) { return *p.destination == address(at); };
    const auto expected = static_cast<size_t>(std::count_if(packets.begin(), packets.end(), mine));
    for (const Arrival& arrival : collect(end(at), expected)) {
      const uint32_t id = id_of(arrival.bytes);
      ASSERT_LT(id, letters.size());
      EXPECT_EQ(1 + id / 2 % 2, at) << id;
      EXPECT_TRUE(arrival.bytes == letters[id].bytes()) << id;
      seen.insert(id);
    }
  }
  EXPECT_EQ(seen.size(), letters.size());
}

TEST_P(PacketIoConformance, ReportsTheSourceAndOnePortPerPath) {
  const uint32_t paths = end(0).caps().paths;
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 2 * paths; ++id) letters.emplace_back(id, 40, 0, 4);
  std::vector<TxPacket> packets;
  for (uint32_t id = 0; id < letters.size(); ++id) {
    packets.push_back(letters[id].to(address(1), static_cast<uint16_t>(id % paths)));
  }
  send_all(end(0), packets);
  std::map<uint32_t, std::set<uint16_t>> ports_of_path;
  std::set<uint16_t> ports;
  for (const Arrival& arrival : collect(end(1), letters.size())) {
    EXPECT_EQ(arrival.source.ip, address(0).ip);
    EXPECT_EQ(arrival.source.scope_id, address(0).scope_id);
    ports_of_path[id_of(arrival.bytes) % paths].insert(arrival.source.port);
    ports.insert(arrival.source.port);
  }
  EXPECT_EQ(ports.size(), paths);
  for (const auto& [path, own] : ports_of_path) EXPECT_EQ(own.size(), 1U) << "path " << path;
}

TEST_P(PacketIoConformance, ReportsEcnWhereSupported) {
  const Letter letter(1, 40, 100, 4);
  const TxPacket packet = letter.to(address(1));
  send_all(end(0), {&packet, 1});
  const auto arrivals = collect(end(1), 1);
  ASSERT_EQ(arrivals.size(), 1U);
  EXPECT_EQ(arrivals[0].ecn, end(1).caps().sees_ecn ? Ecn::kCapable0 : Ecn::kNotCapable);
}

TEST_P(PacketIoConformance, LosesNothingWithSmallReceiveSpans) {
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 40; ++id) letters.emplace_back(id, 40, 200, 4);
  expect_delivered(letters, 1);
}

TEST_P(PacketIoConformance, LosesNothingWithOddReceiveSpans) {
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 40; ++id) letters.emplace_back(id, 40, id % 7 * 30, 4);
  expect_delivered(letters, 3);
}

TEST_P(PacketIoConformance, BuffersAreReused) {
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 32; ++id) letters.emplace_back(id, 40, 200, 4);
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    for (const size_t from : {0U, 1U}) {
      std::vector<TxPacket> packets;
      for (const Letter& letter : letters) packets.push_back(letter.to(address(1 - from)));
      send_all(end(from), packets);
      collect(end(1 - from), packets.size());
    }
  }
}

TEST_P(PacketIoConformance, ReceivedBytesStayUntilTheNextReceive) {
  const Letter first(1, 40, 100, 4);
  const Letter second(2, 40, 100, 4);
  const TxPacket packets[] = {first.to(address(1)), second.to(address(1))};
  send_all(end(0), {&packets[0], 1});
  std::vector<RxPacket> received(8);
  size_t count = 0;
  for (int idle = 0; count == 0 && idle < kPatience; ++idle) {
    now_ = world_.step();
    count = end(1).receive(received, now_);
  }
  ASSERT_EQ(count, 1U);
  send_all(end(0), {&packets[1], 1});
  for (int i = 0; i < 10; ++i) now_ = world_.step();
  EXPECT_TRUE(std::ranges::equal(received[0].bytes, first.bytes()));
  EXPECT_EQ(received[0].source->ip, address(0).ip);
  collect(end(1), 1);
}

TEST_P(PacketIoConformance, WhatArrivesUnderOverloadIsWhole) {
  // Much more than the receive buffer holds, with nobody receiving: send() may take less, and the
  // network may drop packets, but each packet that arrives must be whole.
  const size_t payload = std::min<size_t>(end(0).caps().datagram_bytes - 44, 4096);
  std::vector<Letter> letters;
  for (uint32_t id = 0; id < 64; ++id) letters.emplace_back(id, 40, payload, 4);
  std::vector<TxPacket> packets;
  for (const Letter& letter : letters) packets.push_back(letter.to(address(1)));
  const size_t rounds = end(1).caps().receive_bytes / (64 * payload) * 3 + 2;
  uint64_t taken = 0;
  for (size_t round = 0; round < rounds; ++round) {
    const size_t count = end(0).send(packets, now_);
    ASSERT_LE(count, packets.size());
    taken += count;
  }

  std::vector<RxPacket> received(32);
  uint64_t arrived = 0;
  for (int idle = 0; idle < 5; ++idle) {
    const size_t count = end(1).receive(received, now_);
    for (const RxPacket& packet : std::span(received).first(count)) {
      const uint32_t id = id_of(packet.bytes);
      ASSERT_LT(id, letters.size());
      ASSERT_TRUE(std::ranges::equal(packet.bytes, letters[id].bytes())) << id;
      idle = 0;
    }
    arrived += count;
    if (count == 0) now_ = world_.step();
  }
  EXPECT_GT(arrived, 0U);
  EXPECT_LE(arrived, taken);
}

}  // namespace pacecar
