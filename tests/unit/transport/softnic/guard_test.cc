// SoftNic with tags on its packets: forged, repeated or changed packets have no effect.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/soft_nic_traffic.h"
#include "tests/support/wire_reencode.h"

namespace pacecar::test::guard_test {
namespace {

using wire::PacketKind;

SoftNicConfig guarded(Security security) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.security = security;
  config.full_checksum = false;
  return config;
}

// For another queue pair.
void readdress(Datagram& datagram, uint32_t number) {
  for (int i = 0; i < 3; ++i) datagram.bytes[5 + i] = static_cast<uint8_t>(number >> (16 - 8 * i));
}

class SoftNicGuard : public testing::TestWithParam<Security> {
 protected:
  // Both directions at once, so that acknowledgements and data mix; returns whether all arrived.
  bool exchange(Bytes bytes) {
    const auto& from_0 = pair_.memory(0, bytes, Access::kLocalRead, 1);
    const auto& from_1 = pair_.memory(1, bytes, Access::kLocalRead, 2);
    const auto& to_0 = pair_.memory(0, bytes, Access::kRemoteWrite, 9);
    const auto& to_1 = pair_.memory(1, bytes, Access::kRemoteWrite, 9);
    const std::array before{pair_.completions[0].size(), pair_.completions[1].size()};
    pair_.post(0, ends_[0], SoftNicPair::write(from_0, to_1, bytes, 1, 7));
    pair_.post(1, ends_[1], SoftNicPair::write(from_1, to_0, bytes, 1, 8));
    const bool done = pair_.run([&] {
      return pair_.completions[0].size() >= before[0] + 2 &&
             pair_.completions[1].size() >= before[1] + 2;
    });
    return done && to_1.bytes == from_0.bytes && to_0.bytes == from_1.bytes;
  }
  // What a stranger can see of one direction and the other.
  std::array<std::vector<Datagram>, 2> overheard(Bytes bytes) {
    std::array<std::vector<Datagram>, 2> seen;
    pair_.lose = [&seen](size_t from, const Datagram& datagram) {
      seen[from].push_back(datagram);
      return false;
    };
    EXPECT_TRUE(exchange(bytes));
    pair_.lose = [](size_t, const Datagram&) { return false; };
    pair_.run_for(Duration::from_ms(1));
    return seen;
  }
  uint64_t refused(size_t side) {
    const NicCounters& counters = pair_.nic(side).counters();
    return counters.forged + counters.replayed + counters.malformed;
  }
  // Delivers it, and expects that nothing comes of it but a count.
  void expect_ignored(size_t to, const Datagram& datagram, const std::string& what) {
    const uint64_t before = refused(to);
    pair_.deliver(to, datagram);
    EXPECT_EQ(refused(to), before + 1) << what;
    EXPECT_TRUE(pair_.transmit_for(to, Duration::from_ms(1)).empty()) << what;
    std::array<FlowSignal, 1> signals;
    EXPECT_EQ(pair_.nic(to).poll_signals(signals), 0U) << what;
  }
  // Every bit of a packet of ours, before the packet itself: it still arrives.
  void change_every_bit(const SoftNicPair::Ends& ends, Bytes bytes) {
    const auto& from = pair_.memory(0, bytes, Access::kLocalRead, 1);
    const auto& to = pair_.memory(1, bytes, Access::kRemoteWrite, 9);
    pair_.post(0, ends[0], SoftNicPair::write(from, to, bytes, 1, 7));
    const auto sent = pair_.transmit(0);
    ASSERT_EQ(sent.size(), 1U);
    const auto untouched = to.bytes;
    for (size_t bit = 0; bit < 8 * sent[0].bytes.size(); ++bit) {
      Datagram changed = sent[0];
      changed.bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      pair_.deliver(1, changed);
      ASSERT_EQ(pair_.nic(1).counters().data_packets_received, 0U) << "bit " << bit;
      ASSERT_EQ(to.bytes, untouched) << "bit " << bit;
    }
    EXPECT_TRUE(pair_.transmit(1).empty());
    pair_.deliver(1, sent[0]);
    EXPECT_EQ(pair_.nic(1).counters().data_packets_received, 1U);
    EXPECT_EQ(to.bytes, from.bytes);
  }
  void drain_signals() {
    std::array<FlowSignal, 4> signals;
    for (size_t side = 0; side < 2; ++side) pair_.nic(side).poll_signals(signals);
  }

  SoftNicPair pair_{guarded(GetParam())};
  SoftNicPair::Ends ends_ = pair_.connect();
};

INSTANTIATE_TEST_SUITE_P(Security, SoftNicGuard,
                         testing::Values(Security::kAuth, Security::kEncrypt),
                         [](const auto& chosen) { return std::string(name_of(chosen.param)); });

TEST_P(SoftNicGuard, DataArrivesThroughLoss) {
  Prng prng(5);
  pair_.lose = [&prng](size_t, const Datagram&) { return prng.below(10) == 0; };
  for (const Bytes bytes : {1, 100, 128, 129, 1024, 300'000}) EXPECT_TRUE(exchange(bytes)) << bytes;
  EXPECT_EQ(refused(0) + refused(1), 0U);
}

TEST_P(SoftNicGuard, ReplayedPacketsChangeNothing) {
  const auto seen = overheard(20'000);
  drain_signals();
  for (size_t from = 0; from < 2; ++from) {
    for (const Datagram& datagram : seen[from]) expect_ignored(1 - from, datagram, "replayed");
  }
  EXPECT_TRUE(exchange(20'000));
}

TEST_P(SoftNicGuard, ReflectedPacketsChangeNothing) {
  const auto seen = overheard(20'000);
  drain_signals();
  for (size_t from = 0; from < 2; ++from) {
    for (Datagram datagram : seen[from]) {
      // In the name of the peer, to the sender itself.
      readdress(datagram, ends_[from]);
      expect_ignored(from, datagram, "reflected");
    }
  }
  EXPECT_TRUE(exchange(20'000));
}

// With counters that have not been used: nothing but the tag is wrong.
TEST_P(SoftNicGuard, ForgedPacketsChangeNothing) {
  const auto seen = overheard(3000);
  drain_signals();
  const size_t trailer = trailer_bytes(GetParam());
  for (size_t from = 0; from < 2; ++from) {
    for (const Datagram& original : seen[from]) {
      for (const uint32_t ahead : {1U, 100U, 100'000U, 1U << 24, 1U << 31}) {
        Datagram forged = original;
        uint8_t* const at = &forged.bytes[forged.bytes.size() - trailer];
        wire::store_be32(wire::load_be32(at) + ahead, at);
        expect_ignored(1 - from, forged, "forged");
      }
    }
  }
  EXPECT_TRUE(exchange(20'000));
}

// A message of 128 bytes behind the header of an eager message.
TEST_P(SoftNicGuard, ChangedPacketsChangeNothing) { change_every_bit(ends_, 152); }

TEST_P(SoftNicGuard, ChangedControlWritesChangeNothingHoweverLong) {
  const auto ends =
      pair_.connect({.flow = 1, .traffic_class = TrafficClass::kControl, .paced = false});
  change_every_bit(ends, 1000);
}

TEST_P(SoftNicGuard, TruncatedPacketsChangeNothing) {
  const auto seen = overheard(3000);
  drain_signals();
  for (size_t from = 0; from < 2; ++from) {
    for (const Datagram& original : seen[from]) {
      for (size_t size = 0; size < original.bytes.size(); size += 7) {
        Datagram cut = original;
        cut.bytes.resize(size);
        pair_.deliver(1 - from, cut);
        EXPECT_TRUE(pair_.transmit_for(1 - from, Duration::from_us(200)).empty()) << size;
      }
    }
  }
  EXPECT_TRUE(exchange(20'000));
}

// Its end is where it was.
TEST_P(SoftNicGuard, ShortenedPayloadsChangeNothing) {
  const auto& from = pair_.memory(0, 1000, Access::kLocalRead, 1);
  const auto& to = pair_.memory(1, 1000, Access::kRemoteWrite, 9);
  pair_.post(0, ends_[0], SoftNicPair::write(from, to, 1000, 1, 7));
  const auto sent = pair_.transmit(0);
  ASSERT_EQ(sent.size(), 1U);
  for (size_t less = 1; less <= 1000; ++less) {
    Datagram shorter = sent[0];
    const auto payload = shorter.bytes.begin() + wire::kDataHeaderBytes;
    shorter.bytes.erase(payload, payload + static_cast<ptrdiff_t>(less));
    pair_.deliver(1, shorter);
    ASSERT_EQ(pair_.nic(1).counters().data_packets_received, 0U) << less;
  }
  pair_.deliver(1, sent[0]);
  EXPECT_EQ(to.bytes, from.bytes);
}

// The review's attacks: each stalled a job, or kept a dead peer alive.
TEST_P(SoftNicGuard, WritesTakenBackByStrangersLoseNoPacket) {
  for (uint32_t psn = 0; psn < 4096; ++psn) {
    const wire::DataHeader header{.taken_back = true, .destination_qp = ends_[1], .psn = psn};
    pair_.deliver(1, {.bytes = wire::encode_data(header, {}, wire::Coverage::kFull)});
  }
  EXPECT_TRUE(exchange(100'000));
}

TEST_P(SoftNicGuard, StrangersDoNotKeepADeadPeerAlive) {
  const auto& from = pair_.memory(0, 1000, Access::kLocalRead, 1);
  const auto& to = pair_.memory(1, 1000);
  pair_.lose = [](size_t, const Datagram&) { return true; };
  pair_.post(0, ends_[0], SoftNicPair::write(from, to, 1000, 1, 7));
  for (int i = 0; i < 1000 && pair_.completions[0].empty(); ++i) {
    const wire::AckHeader ack{.destination_qp = ends_[0],
                              .cumulative = static_cast<uint32_t>(i) << 12};
    pair_.deliver(0, {.bytes = wire::encode_ack(ack, {})});
    pair_.run_for(Duration::from_ms(2));
  }
  ASSERT_FALSE(pair_.completions[0].empty());
  EXPECT_EQ(pair_.completions[0].back().kind, CompletionKind::kBroken);
}

TEST_P(SoftNicGuard, PacketsThatOvertakeEachOtherAreTaken) {
  const auto& from = pair_.memory(0, 60 * kMtu, Access::kLocalRead, 1);
  const auto& to = pair_.memory(1, 60 * kMtu, Access::kRemoteWrite, 9);
  pair_.post(0, ends_[0], SoftNicPair::write(from, to, 60 * kMtu, 1, 7));
  auto sent = pair_.transmit_for(0, Duration::from_us(100));
  ASSERT_EQ(sent.size(), 60U);
  std::ranges::reverse(sent);
  for (const Datagram& datagram : sent) pair_.deliver(1, datagram);
  pair_.collect();
  ASSERT_EQ(pair_.completions[1].size(), 1U);
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST_P(SoftNicGuard, KeysChangeWithoutAPause) {
  SoftNicConfig config = guarded(GetParam());
  config.packets_per_key_log2 = 4;
  SoftNicPair often(config);
  const auto ends = often.connect();
  const auto& from = often.memory(0, 1000 * kMtu, Access::kLocalRead, 1);
  const auto& to = often.memory(1, 1000 * kMtu, Access::kRemoteWrite, 9);
  Prng prng(5);
  often.lose = [&prng](size_t, const Datagram&) { return prng.below(20) == 0; };
  often.post(0, ends[0], SoftNicPair::write(from, to, 1000 * kMtu, 1, 7));
  ASSERT_TRUE(often.run_until_completed(1, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(often.nic(1).counters().forged, 0U);
  EXPECT_EQ(often.nic(0).counters().forged, 0U);
}

TEST_P(SoftNicGuard, PayloadTravelsInTheClearOnlyWhereItMay) {
  const auto seen = overheard(1000);
  std::vector<uint8_t> plain(200);
  std::iota(plain.begin(), plain.end(), uint8_t{1});
  const bool readable = std::ranges::any_of(seen[0], [&plain](const Datagram& datagram) {
    return !std::ranges::search(datagram.bytes, plain).empty();
  });
  EXPECT_EQ(readable, GetParam() == Security::kAuth);
}

TEST_P(SoftNicGuard, JoinedPacketsAreSealedOneByOne) {
  SoftNicConfig config = guarded(GetParam());
  config.joins_packets = true;
  SoftNicPair joining(config);
  const auto ends = joining.connect();
  const auto& there = joining.memory(0, 5000, Access::kRemoteAll, 1);
  const auto& here = joining.memory(1, 5000, Access::kRemoteAll, 2);
  for (uint64_t id = 1; id <= 50; ++id) {
    joining.post(0, ends[0], SoftNicPair::write(there, here, 5000, id, 7));
    ASSERT_TRUE(joining.run_until_completed(1, id * 2 - 1));
    joining.post(1, ends[1], SoftNicPair::write(here, there, 100, id, 7));
    ASSERT_TRUE(joining.run_until_completed(0, id * 2));
  }
  EXPECT_EQ(joining.nic(0).counters().forged + joining.nic(1).counters().forged, 0U);
}

// --- setting up ---

TEST(SoftNicSecurity, BothEndsHaveTheSameOrNone) {
  for (const Security mine : {Security::kOff, Security::kAuth, Security::kEncrypt}) {
    for (const Security theirs : {Security::kOff, Security::kAuth, Security::kEncrypt}) {
      SoftNicPair pair(guarded(mine));
      SoftNicPair other(guarded(theirs));
      const auto id = pair.nic(0).create_queue_pair({}).value();
      const auto peer = other.nic(1).create_queue_pair({}).value();
      const auto joined =
          pair.nic(0).connect_queue_pair(id, other.nic(1).queue_pair_address(peer).view());
      EXPECT_EQ(joined.has_value(), mine == theirs);
      if (joined) continue;
      EXPECT_EQ(joined.error().code, ErrorCode::kPeer);
      for (const Security one : {mine, theirs}) {
        EXPECT_NE(joined.error().message.find("PACECAR_SECURITY=" + std::string(name_of(one))),
                  std::string::npos)
            << joined.error().message;
      }
    }
  }
}

TEST(SoftNicSecurity, AKeyThatIsNoneIsRefused) {
  SoftNicPair pair(guarded(Security::kAuth));
  const auto id = pair.nic(0).create_queue_pair({}).value();
  const auto peer = pair.nic(1).create_queue_pair({}).value();
  auto endpoint = decode_endpoint(pair.nic(1).queue_pair_address(peer).view()).value();
  endpoint.extended->public_key = {};
  const auto bad = encode(*endpoint.extended, true, {});
  EXPECT_FALSE(pair.nic(0).connect_queue_pair(id, bad.view()).has_value());
}

// The first packets of two connections of the same NICs, each way, with the same payload and the
// same counter: only keys of their own make them differ.
TEST(SoftNicSecurity, NoTwoDirectionsHaveAKeyInCommon) {
  SoftNicPair pair(guarded(Security::kEncrypt));
  std::set<std::vector<uint8_t>> enciphered;
  for (const FlowId flow : {0U, 1U}) {
    const auto ends = pair.connect({.flow = flow});
    for (size_t side = 0; side < 2; ++side) {
      const auto& from = pair.memory(side, 1000, Access::kLocalRead, 1);
      const auto& to = pair.memory(1 - side, 1000);
      pair.post(side, ends[side], SoftNicPair::write(from, to, 1000, 1, 7));
      const auto sent = pair.transmit(side);
      ASSERT_EQ(sent.size(), 1U);
      const auto payload = sent[0].bytes.begin() + wire::kDataHeaderBytes;
      EXPECT_TRUE(enciphered.emplace(payload, payload + 1000).second);
    }
  }
}

}  // namespace
}  // namespace pacecar::test::guard_test
