// Paths that do not pass all packets: what passes is found, everything arrives, and the flow says
// what does not pass.
#include "transport/softnic/extended/path_mtu.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/soft_nic_pair.h"
#include "transport/base/prng.h"
#include "transport/softnic/extended/pieces.h"
#include "transport/wire/extended.h"

namespace pacecar::path_mtu_test {
namespace {

using test::Datagram;
using test::SoftNicPair;
using test::TestMemory;

constexpr Bytes kHeaders = 20 + 8;  // IPv4 and UDP
constexpr Bytes kMtu = 4096;
constexpr Bytes kWrite = 10 * kMtu + 77;

SoftNicConfig searching(Security security = Security::kOff) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.mtu = kMtu;
  config.burst_bytes = 4 * kMtu;
  config.searches_mtu = true;
  config.security = security;
  config.silence_limit = Duration::from_s(10);
  return config;
}

struct Writer {
  explicit Writer(const SoftNicConfig& config = searching(), Bytes each = kWrite)
      : bytes(each),
        pair(config),
        ends(pair.connect()),
        from(pair.memory(0, each, Access::kLocalRead, 3)),
        to(pair.memory(1, each)) {
    pair.lose = [this](size_t, Datagram& datagram) {
      const Bytes size = datagram.bytes.size() + kHeaders;
      if (size <= passes) largest = std::max(largest, size);
      sent += 1;
      nearly_1500 += size > 1440 && size < 1500 ? 1 : 0;
      if (random.below(100) < lost_percent) return true;
      return size > (datagram.alone ? passes : std::min(passes, passes_joined));
    };
  }
  // Writes once, and checks the data at the target.
  void write(Duration limit = Duration::from_ms(900)) {
    std::ranges::fill(to.bytes, 0);
    ++writes;
    pair.post(0, ends[0], SoftNicPair::write(from, to, bytes, writes, writes));
    ASSERT_TRUE(pair.run_until_completed(1, writes, limit)) << writes;
    EXPECT_EQ(pair.completions[1].back().immediate, writes);
    EXPECT_EQ(to.bytes, from.bytes);
    ASSERT_TRUE(pair.run_until_completed(0, writes, limit)) << writes;
  }
  // FlowSignal::path_mtu of the sender.
  uint32_t path_mtu() {
    std::array<FlowSignal, 4> signals;
    const size_t count = pair.nic(0).poll_signals(signals);
    if (count > 0) {
      reported = signals[count - 1].path_mtu;
      counted = signals[count - 1].sent;
    }
    return reported;
  }

  const Bytes bytes;
  SoftNicPair pair;
  SoftNicPair::Ends ends;
  TestMemory& from;
  TestMemory& to;
  uint32_t writes = 0;
  uint32_t reported = 0;
  Bytes counted = 0;  // FlowSignal::sent
  Bytes passes = 1 << 16;
  Bytes passes_joined = 1 << 16;
  Bytes largest = 0;
  uint64_t sent = 0;
  uint64_t nearly_1500 = 0;  // datagrams of that size
  uint32_t lost_percent = 0;
  Prng random{5};
};

class AllSizes : public testing::TestWithParam<std::tuple<Bytes, Security>> {};

TEST_P(AllSizes, PathFromTheStart) {
  const auto& [passes, security] = GetParam();
  Writer writer(searching(security));
  writer.passes = passes;
  for (int i = 0; i < 5; ++i) writer.write();
  writer.pair.run_for(Duration::from_ms(500));
  EXPECT_EQ(writer.path_mtu(), passes);
  writer.largest = 0;
  writer.write(Duration::from_ms(2));
  EXPECT_LE(writer.largest, passes);
  EXPECT_GT(writer.largest, passes - 256);
}

TEST_P(AllSizes, PiecesAreLost) {
  const auto& [passes, security] = GetParam();
  for (uint32_t seed = 0; seed < 10; ++seed) {
    Writer writer(searching(security));
    writer.random = Prng(seed);
    for (int i = 0; i < 2; ++i) writer.write();
    writer.lost_percent = 10;
    writer.passes = passes;
    for (int i = 0; i < 2; ++i) writer.write(Duration::from_s(9));
  }
}

TEST_P(AllSizes, PathThatBecomesSmaller) {
  const auto& [passes, security] = GetParam();
  Writer writer(searching(security));
  for (int i = 0; i < 5; ++i) writer.write();
  EXPECT_GT(writer.largest, kMtu);
  writer.passes = passes;
  writer.write();  // in packets that had begun larger
  for (int i = 0; i < 5; ++i) writer.write();
  writer.pair.run_for(Duration::from_ms(500));
  EXPECT_EQ(writer.path_mtu(), passes);

  writer.passes = 1 << 16;
  writer.pair.run_for(Duration::from_s(31));
  writer.write();
  writer.largest = 0;
  writer.write();
  EXPECT_GT(writer.largest, kMtu);
  EXPECT_EQ(writer.path_mtu(), 0);
}

INSTANTIATE_TEST_SUITE_P(, AllSizes,
                         testing::Combine(testing::Values(576, 1280, 1500, 2044),
                                          testing::Values(Security::kOff, Security::kAuth,
                                                          Security::kEncrypt)));

TEST(Pieces, EachCountsOnceAndForItsDivision) {
  Pieces pieces;
  EXPECT_EQ(pieces.add(5, 0, 3, 100), std::nullopt);
  EXPECT_EQ(pieces.add(5, 0, 3, 100), std::nullopt);
  EXPECT_EQ(pieces.add(5, 2, 3, 50), std::nullopt);
  EXPECT_EQ(pieces.add(6, 1, 2, 7), std::nullopt);
  EXPECT_EQ(pieces.add(5, 1, 3, 100), 250);
  EXPECT_EQ(pieces.add(6, 0, 3, 5), std::nullopt);  // divided anew
  EXPECT_EQ(pieces.add(6, 1, 3, 5), std::nullopt);
  EXPECT_EQ(pieces.add(6, 2, 3, 1), 11);
}

TEST(PathMtu, ThreeQuestionsAreAskedWhereEverythingPasses) {
  Writer writer;
  writer.pair.run_for(Duration::from_ms(1));
  EXPECT_EQ(writer.sent, 2 * (3 + 3));  // of both ends, with the answers
  writer.write();
  EXPECT_GT(writer.largest, kMtu);
  writer.pair.run_for(Duration::from_s(100));
  EXPECT_EQ(writer.path_mtu(), 0);
}

// The first write begins before it is known what passes, in pieces; its packets are full ones.
TEST(PathMtu, BytesOfTheFirstWriteAreCountedOnce) {
  constexpr Bytes kEach = 1 << 20;
  for (const Security security : {Security::kOff, Security::kEncrypt}) {
    Writer writer(searching(security), kEach);
    for (uint32_t i = 1; i <= 3; ++i) {
      writer.write();
      EXPECT_EQ(writer.path_mtu(), 0U);
      EXPECT_EQ(writer.counted, i * kEach);
    }
    const uint64_t before = writer.pair.nic(0).counters().data_packets_sent;
    writer.write();
    EXPECT_EQ(writer.pair.nic(0).counters().data_packets_sent - before, kEach / kMtu);
  }
}

TEST(PathMtu, JoinedPacketsMayVanishWhereSingleOnesPass) {
  Writer writer;
  for (int i = 0; i < 5; ++i) writer.write();
  writer.passes_joined = 500;
  for (int i = 0; i < 5; ++i) writer.write();
  EXPECT_EQ(writer.path_mtu(), 0);
  writer.passes = 1500;
  for (int i = 0; i < 5; ++i) writer.write();
  writer.pair.run_for(Duration::from_ms(500));
  EXPECT_EQ(writer.path_mtu(), 1500);
}

TEST(PathMtu, WritesThatHaveNotBegunAreDividedAnew) {
  Writer writer(searching(), 1 << 20);
  writer.write();
  writer.passes = 1500;
  for (uint32_t i = 1; i < 9; ++i) {  // more than the window takes
    writer.pair.post(0, writer.ends[0], SoftNicPair::write(writer.from, writer.to, 1 << 20, i, i));
  }
  ASSERT_TRUE(writer.pair.run_until_completed(1, 9, Duration::from_ms(900)));
  EXPECT_GT(writer.nearly_1500, (6U << 20) / 1408) << "pieces are smaller, questions larger";
}

// Control writes of many CTS slots are large.
TEST(PathMtu, ControlWritesAskToo) {
  SoftNicPair pair(searching());
  const auto ends = pair.connect({.paced = false});
  const auto& from = pair.memory(0, kWrite, Access::kLocalRead, 3);
  auto& to = pair.memory(1, kWrite);
  pair.lose = [](size_t, Datagram& datagram) { return datagram.bytes.size() + kHeaders > 1500; };
  pair.post(0, ends[0], SoftNicPair::write(from, to, kWrite, 1, 1));
  EXPECT_TRUE(pair.run_until_completed(1, 1, Duration::from_ms(900)));
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST(PathMtu, ManyFlowsAskAPeerThatDoesNotAnswer) {
  SoftNicConfig config = searching();
  config.flows = 200;
  config.queue_pairs = 256;
  SoftNicPair pair(config);
  size_t sent = 0;
  pair.lose = [&](size_t, Datagram&) { return ++sent > 0; };
  for (uint32_t flow = 0; flow < 200; ++flow) pair.connect({.flow = flow});
  pair.run_for(Duration::from_s(60));
  EXPECT_GT(sent, 2 * 200 * 3U);
  EXPECT_LT(sent, 2 * 200 * 300U);  // ever more rarely
}

// A virtual bridge looks at the size of a single packet only.
TEST(PathMtu, SinglePacketsMayVanishWhereJoinedOnesPass) {
  Writer writer;
  writer.pair.lose = [](size_t, Datagram& datagram) {
    return datagram.alone && datagram.bytes.size() + kHeaders > 1500;
  };
  for (int i = 0; i < 5; ++i) writer.write();
  writer.pair.run_for(Duration::from_ms(500));
  EXPECT_EQ(writer.path_mtu(), 1500);
}

TEST(PathMtu, LossesAloneDoNotReduceIt) {
  Writer writer;
  Prng random(7);
  writer.pair.lose = [&](size_t, Datagram&) { return random.below(10) < 3; };
  for (int i = 0; i < 300; ++i) writer.write(Duration::from_s(5));
  EXPECT_EQ(writer.path_mtu(), 0);
}

// A policer passes only the first packets of each burst.
TEST(PathMtu, LimitersOfBurstsDoNotReduceIt) {
  Writer writer;
  std::array<Instant, 2> burst;
  std::array<uint32_t, 2> passed{};
  writer.pair.lose = [&](size_t from, Datagram&) {
    if (writer.pair.now > burst[from] + Duration::from_ms(2)) {
      burst[from] = writer.pair.now;
      passed[from] = 0;
    }
    return ++passed[from] > 8;
  };
  for (int i = 0; i < 300; ++i) {
    writer.write(Duration::from_s(5));
    ASSERT_EQ(writer.path_mtu(), 0) << i;
  }
}

// Pieces have a longer header than packets, and short payloads are authenticated wholly.
TEST(PathMtu, PiecesOfEachSizeAreAuthenticated) {
  for (const Security security : {Security::kAuth, Security::kEncrypt}) {
    for (Bytes size = 1; size < 800; ++size) {
      Writer writer(searching(security), size);
      writer.write();
      ASSERT_FALSE(testing::Test::HasFailure()) << size;
    }
  }
}

// An interface may pass only the first of the packets that the kernel joins.
TEST(PathMtu, FirstOfJoinedPacketsMayPassAlone) {
  Writer writer;
  std::array<Instant, 2> last_joined;
  uint64_t lost = 0;
  writer.pair.lose = [&](size_t from, Datagram& datagram) {
    if (datagram.alone) return false;
    const bool follows = std::exchange(last_joined[from], writer.pair.now) == writer.pair.now;
    lost += follows ? 1 : 0;
    return follows;
  };
  writer.pair.now = writer.pair.now + Duration::from_ms(1);
  for (int i = 0; i < 5; ++i) writer.write();
  writer.pair.run_for(Duration::from_ms(500));
  EXPECT_EQ(writer.path_mtu(), 0);
  lost = 0;
  for (int i = 0; i < 5; ++i) writer.write();
  EXPECT_EQ(lost, 0U);
}

// An interface may lose what the kernel hands on as one: then nothing would be known of the path.
TEST(PathMtu, AnswersAreNotJoined) {
  Writer writer;
  size_t answers = 0;
  writer.pair.lose = [&](size_t, Datagram& datagram) {
    if (wire::classify(datagram.bytes) != wire::PacketKind::kNak) return false;
    ++answers;
    EXPECT_TRUE(datagram.alone);
    return false;
  };
  writer.pair.run_for(Duration::from_ms(1));
  EXPECT_EQ(answers, 2 * 3U);
}

// Whatever is lost and whenever the path changes, each write arrives once and whole.
RC_GTEST_PROP(PathMtuProperty, EachWriteArrivesOnce, (uint32_t seed)) {
  Prng random(seed);
  Writer writer(searching(random.below(2) == 0 ? Security::kOff : Security::kAuth));
  constexpr std::array<Bytes, 4> kPaths{576, 1500, 2044, 1 << 16};
  Instant changes;
  writer.pair.lose = [&](size_t, Datagram& datagram) {
    if (writer.pair.now >= changes) {
      writer.passes = kPaths[random.below(kPaths.size())];
      changes = writer.pair.now + Duration::from_us(1 + random.below(1'000'000));
    }
    return datagram.bytes.size() + kHeaders > writer.passes || random.below(10) == 0;
  };
  std::map<uint32_t, int> arrived;
  for (int i = 0; i < 30; ++i) writer.write(Duration::from_s(9));
  for (const Completion& completion : writer.pair.completions[1]) ++arrived[completion.immediate];
  for (const auto& [immediate, times] : arrived) RC_ASSERT(times == 1);
}

}  // namespace
}  // namespace pacecar::path_mtu_test
