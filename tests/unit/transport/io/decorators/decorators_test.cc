// The packet I/O decorators over a scripted PacketIo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/support/scratch_directory.h"
#include "tests/support/scripted_packet_io.h"
#include "transport/io/decorators/fault.h"
#include "transport/io/decorators/pcap.h"

namespace pacecar::decorators_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kDatagramBytes = 100;

std::vector<uint8_t> datagram(uint32_t id, size_t size = kDatagramBytes) {
  std::vector<uint8_t> bytes(size, static_cast<uint8_t>(id));
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes;
}

uint32_t id_of(std::span<const uint8_t> bytes) {
  uint32_t id = 0;
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

// A FaultIo over a ScriptedPacketIo, and packets that pass through it.
struct FaultyPath {
  explicit FaultyPath(const char* text) {
    auto owned = std::make_unique<ScriptedPacketIo>();
    inner = owned.get();
    io = inject_faults(std::move(owned), *parse_fault(text));
  }

  std::vector<std::vector<uint8_t>> receive_all(size_t span, Instant now = Instant()) {
    std::vector<std::vector<uint8_t>> all;
    std::vector<RxPacket> packets(span);
    while (const size_t count = io->receive(packets, now)) {
      for (const RxPacket& packet : std::span(packets).first(count)) {
        EXPECT_EQ(*packet.source, inner->peer());
        EXPECT_EQ(packet.ecn, Ecn::kCapable0);
        EXPECT_EQ(packet.ipv4_fragment, ScriptedPacketIo::kFragment);
        all.emplace_back(packet.bytes.begin(), packet.bytes.end());
      }
    }
    return all;
  }

  ScriptedPacketIo* inner;
  std::unique_ptr<PacketIo> io;
};

struct Tally {
  size_t harmed = 0;
  size_t missing = 0;
  size_t twice = 0;
  size_t disorder = 0;
};

Tally tally(const std::vector<std::vector<uint8_t>>& arrived, uint32_t offered) {
  Tally result;
  std::vector<uint32_t> seen(offered);
  uint32_t last = 0;
  for (const auto& bytes : arrived) {
    const uint32_t id = id_of(bytes);
    if (id >= offered || bytes != datagram(id)) {
      ++result.harmed;
      continue;
    }
    if (++seen[id] > 1) {  // a copy may come late
      ++result.twice;
      continue;
    }
    result.disorder += id < last ? 1 : 0;
    last = id;
  }
  for (const uint32_t count : seen) result.missing += count == 0 ? 1 : 0;
  return result;
}

// Five standard deviations of a binomial count.
void expect_rate(size_t count, double probability, size_t n) {
  const double mean = probability * static_cast<double>(n);
  const double bound = 5 * std::sqrt(mean * (1 - probability));
  EXPECT_NEAR(static_cast<double>(count), mean, bound);
}

constexpr uint32_t kOffered = 20'000;

Tally run_receive(const char* text, size_t span) {
  FaultyPath path(text);
  for (uint32_t id = 0; id < kOffered; ++id) path.inner->incoming.push_back(datagram(id));
  return tally(path.receive_all(span), kOffered);
}

TEST(Fault, RatesHold) {
  for (const size_t span : {1U, 7U, 64U}) {
    const Tally result = run_receive("loss=0.02,duplicate=0.01,corrupt=0.005,seed=3", span);
    expect_rate(result.missing - result.harmed, 0.02, kOffered);
    expect_rate(result.twice, 0.01 * 0.98, kOffered);
    expect_rate(result.harmed, 0.005 * 0.98, kOffered);
    EXPECT_EQ(result.disorder, 0U);
  }
}

TEST(Fault, ReorderedPacketsAreOvertakenAndArrive) {
  // One packet each 100 ns: held back by 1 us, a packet is overtaken by about ten.
  FaultyPath path("reorder=0.01,reorder_by=1us");
  std::vector<std::vector<uint8_t>> arrived;
  for (uint32_t id = 0; id < kOffered + 10; ++id) {
    if (id < kOffered) path.inner->incoming.push_back(datagram(id));
    for (auto& bytes : path.receive_all(8, Instant::from_ns(id * 100))) {
      arrived.push_back(std::move(bytes));
    }
  }
  const Tally result = tally(arrived, kOffered);
  EXPECT_EQ(result.missing, 0U);
  EXPECT_EQ(result.twice, 0U);
  // Not quite one in a hundred: of two successive held packets only the first breaks the order.
  EXPECT_GT(result.disorder, kOffered / 150);
  EXPECT_LT(result.disorder, kOffered / 70);
}

TEST(Fault, DelayHoldsEveryPacketForItsTime) {
  FaultyPath path("delay=10us");
  path.inner->incoming.push_back(datagram(1));
  std::vector<RxPacket> packets(4);
  EXPECT_EQ(path.io->receive(packets, Instant::from_ns(1000)), 0U);
  EXPECT_EQ(path.io->receive(packets, Instant::from_ns(10'999)), 0U);
  ASSERT_EQ(path.io->receive(packets, Instant::from_ns(11'000)), 1U);
  EXPECT_TRUE(std::ranges::equal(packets[0].bytes, datagram(1)));
}

TEST(Fault, CorruptionFlipsOneBit) {
  FaultyPath path("corrupt=1");
  const auto original = datagram(5);
  path.inner->incoming.push_back(original);
  const auto arrived = path.receive_all(2);
  ASSERT_EQ(arrived.size(), 1U);
  int flipped = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    flipped += __builtin_popcount(original[i] ^ arrived[0][i]);
  }
  EXPECT_EQ(flipped, 1);
}

TEST(Fault, OnlyCorruptionClearsTheChecksPayloadCapability) {
  EXPECT_FALSE(FaultyPath("corrupt=0.001").io->caps().checks_payload);
  EXPECT_TRUE(FaultyPath("loss=0.001").io->caps().checks_payload);
}

std::vector<uint32_t> survivors(const char* text, size_t span) {
  FaultyPath path(text);
  for (uint32_t id = 0; id < 300; ++id) path.inner->incoming.push_back(datagram(id));
  std::vector<uint32_t> ids;
  for (const auto& bytes : path.receive_all(span)) ids.push_back(id_of(bytes));
  return ids;
}

TEST(Fault, FateOfAPacketDependsOnSeedAndNumberNotOnTheBursts) {
  const auto straight = survivors("loss=0.3,seed=9", 64);
  EXPECT_EQ(straight, survivors("loss=0.3,seed=9", 3));
  EXPECT_NE(straight, survivors("loss=0.3,seed=10", 64));
}

TEST(Fault, ExhaustedPoolIsBackPressureAndLosesNothing) {
  FaultyPath path("delay=1ms");
  for (uint32_t id = 0; id < kOffered; ++id) path.inner->incoming.push_back(datagram(id));
  EXPECT_TRUE(path.receive_all(64, Instant()).empty());
  EXPECT_FALSE(path.inner->incoming.empty());
  std::vector<std::vector<uint8_t>> arrived;
  for (int ms = 0; arrived.size() < kOffered && ms < 10'000; ++ms) {
    for (auto& bytes : path.receive_all(64, Instant::from_ns(ms * 1'000'000))) {
      arrived.push_back(std::move(bytes));
    }
  }
  const Tally result = tally(arrived, kOffered);
  EXPECT_EQ(result.missing + result.twice + result.harmed + result.disorder, 0U);
}

TEST(Fault, TooLongDatagramsPassUnchanged) {
  FaultyPath path("corrupt=1");
  path.inner->incoming.push_back(datagram(1, 20'000));
  EXPECT_THAT(path.receive_all(4), ElementsAre(datagram(1, 20'000)));
}

TEST(ParseFault, ReadsEveryKey) {
  FaultConfig expected;
  expected.loss = 0.02;
  expected.duplicate = 0.01;
  expected.corrupt = 0.001;
  expected.reorder = 1;
  expected.reorder_by = Duration::from_us(50);
  expected.delay = Duration::from_ns(1500);
  expected.seed = 7;
  EXPECT_EQ(parse_fault("loss=0.02,duplicate=0.01,corrupt=1e-3,reorder=1,reorder_by=50us,"
                        "delay=1500ns,seed=7"),
            expected);
  EXPECT_EQ(parse_fault(""), FaultConfig());
}

TEST(ParseFault, RefusesEverythingElse) {
  for (const char* text :
       {"loss", "loss=", "loss=2", "loss=-0.1", "loss=nan", "loss=0.1x", "=1", "lost=0.1",
        "delay=10", "delay=10m", "delay=-1us", "delay=11s", "delay=nans", "seed=-1", "seed=1.5",
        "on=both", "loss=0.1,,seed=1", " loss=0.1"}) {
    const auto config = parse_fault(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr("is not a fault: write loss="));
  }
}

TEST(Fault, HeldPacketsLeaveByTimeThenByOrder) {
  FaultyPath path("delay=10us");
  std::vector<RxPacket> packets(4);
  for (const auto& [first, at_ns] : {std::pair(3U, 10), std::pair(1U, 0)}) {
    path.inner->incoming = {datagram(first), datagram(first + 1)};
    EXPECT_EQ(path.io->receive(packets, Instant::from_ns(at_ns)), 0U);
  }
  std::vector<uint32_t> ids;
  for (const auto& bytes : path.receive_all(4, Instant::from_ns(10'010))) {
    ids.push_back(id_of(bytes));
  }
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4));
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Pcap, RecordsFramesWithValidHeaders) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch.path() / "packets.pcap";
  size_t written = 0;
  {
    auto owned = std::make_unique<ScriptedPacketIo>();
    ScriptedPacketIo* inner = owned.get();
    auto io = record_packets(std::move(owned), path, LogSink());
    ASSERT_TRUE(io) << io.error().message;
    const auto bytes = datagram(1, 33);
    TxPacket packet;
    packet.header = std::span(bytes).first(20);
    packet.payload = std::span(bytes).subspan(20);
    packet.destination = &inner->peer();
    packet.path = 2;
    (*io)->send({&packet, 1}, Instant::from_ns(7'000'000'009));
    inner->incoming.push_back(datagram(2, 50));
    std::vector<RxPacket> received(1);
    (*io)->receive(received, Instant::from_ns(8'000'000'000));
    written = read_file(path).size();
  }
  const auto file = read_file(path);
  EXPECT_EQ(written, file.size()) << "a forked child that ends would write the rest once more";
  constexpr size_t kFileHeader = 24, kRecordHeader = 16, kHeaders = 14 + 20 + 8;
  ASSERT_EQ(file.size(), kFileHeader + 2 * (kRecordHeader + kHeaders) + 33 + 50);
  const auto word = [&](size_t at) { return id_of(std::span(file).subspan(at)); };
  EXPECT_EQ(word(0), 0xA1B23C4DU);
  EXPECT_EQ(word(kFileHeader), 7U);
  EXPECT_EQ(word(kFileHeader + 4), 9U);
  EXPECT_EQ(word(kFileHeader + 8), kHeaders + 33);
  const auto frame = std::span(file).subspan(kFileHeader + kRecordHeader, kHeaders + 33);
  const auto half = [&](size_t at) { return frame[at] << 8 | frame[at + 1]; };
  EXPECT_EQ(half(12), 0x0800);
  EXPECT_EQ(half(14 + 2), 20 + 8 + 33);
  EXPECT_EQ(half(34), 40'002);  // source port: the path's
  EXPECT_EQ(half(36), 4791);
  EXPECT_TRUE(std::ranges::equal(frame.subspan(kHeaders), datagram(1, 33)));
  // The sums of RFC 1071 over header, and over pseudo-header and datagram, come out as all ones.
  uint32_t ip = 0;
  for (size_t i = 14; i < 34; i += 2) ip += static_cast<uint32_t>(half(i));
  EXPECT_EQ(ip % 0xFFFF, 0U);
  uint32_t udp = 17 + 8 + 33;
  for (size_t i = 26; i + 1 < frame.size(); i += 2) udp += static_cast<uint32_t>(half(i));
  udp += static_cast<uint32_t>(frame.back() << 8);
  EXPECT_EQ(udp % 0xFFFF, 0U);
}

TEST(Pcap, SaysWhyItCannotWrite) {
  const auto io =
      record_packets(std::make_unique<ScriptedPacketIo>(), "/no/such/directory/x.pcap", LogSink());
  ASSERT_FALSE(io);
  EXPECT_THAT(io.error().message, HasSubstr("No such file or directory"));
}

TEST(Pcap, AFullDiskEndsTheRecordingOnlyAndIsSaidOnce) {
  std::vector<std::string> lines;
  const LogSink log{[](void* context, LogLevel, std::string_view line) {
                      static_cast<std::vector<std::string>*>(context)->emplace_back(line);
                    },
                    &lines};
  auto owned = std::make_unique<ScriptedPacketIo>();
  ScriptedPacketIo* inner = owned.get();
  auto io = record_packets(std::move(owned), "/dev/full", log);
  ASSERT_TRUE(io) << io.error().message;
  const std::vector<uint8_t> bytes(8000);
  TxPacket packet;
  packet.header = bytes;
  packet.destination = &inner->peer();
  for (int i = 0; i < 10; ++i) EXPECT_EQ((*io)->send({&packet, 1}, Instant()), 1U);
  EXPECT_EQ(inner->sent.size(), 10U);
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("/dev/full"), HasSubstr("No space left"))));
  io->reset();
  EXPECT_EQ(lines.size(), 1U);
  // Buffered bytes are written at the end only.
  ASSERT_TRUE((io = record_packets(std::make_unique<ScriptedPacketIo>(), "/dev/full", log)));
  io->reset();
  EXPECT_EQ(lines.size(), 2U);
}

}  // namespace
}  // namespace pacecar::decorators_test
