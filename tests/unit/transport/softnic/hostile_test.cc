// SoftNic against memory that goes away and packets that nobody should have sent.
#include <gtest/gtest.h>

#include "tests/support/soft_nic_pair.h"
#include "tests/support/wire_reencode.h"
#include "transport/base/seq.h"

namespace pacecar::hostile_test {
namespace {

using test::Datagram;
using test::SoftNicPair;
using test::TestMemory;
using wire::PacketKind;

constexpr Bytes kMtu = 1024;

// --- addresses ---

TEST(SoftNicAddress, OfAQueuePairThatIsTheManagementsOrNoneIsRefused) {
  SoftNicPair pair;
  auto address = pair.nic(0).queue_pair_address(pair.nic(0).create_queue_pair({}).value());
  const std::string_view magic = "PCSQ";
  const auto at = std::ranges::search(std::span(address.bytes), magic).begin();
  for (const uint32_t number : {0U, 1U, 1U << 24}) {
    wire::store_be32(number, &*at + 8);
    const auto decoded = decode_endpoint(address.view());
    ASSERT_FALSE(decoded) << number;
    EXPECT_EQ(decoded.error().code, ErrorCode::kPeer);
  }
}

TEST(SoftNicAddress, WithAnOptionThatNobodyKnowsIsRefused) {
  SoftNicPair pair;
  auto address = pair.nic(0).queue_pair_address(pair.nic(0).create_queue_pair({}).value());
  const std::string_view magic = "PCSQ";
  uint8_t* const options = &*std::ranges::search(std::span(address.bytes), magic).begin() + 28;
  const uint32_t good = wire::load_be32(options);
  for (uint32_t bit = 1; bit < 32; ++bit) {
    if (bit == 8 || bit == 9) continue;  // the security, which says how long the address is
    wire::store_be32(good | 1U << bit, options);
    EXPECT_FALSE(decode_endpoint(address.view())) << bit;
  }
}

// --- memory ---

// Posts a good write, a bad one and a good one, and expects that only the bad one fails.
void expect_only_middle_refused(SoftNicPair& pair, const SoftNicPair::Ends& ends,
                                const TestMemory& from, const TestMemory& to, WorkRequest bad) {
  bad.id = 2;
  pair.post(0, ends[0], SoftNicPair::write(from, to, from.bytes.size(), 1, 11));
  pair.post(0, ends[0], bad);
  pair.post(0, ends[0], SoftNicPair::write(from, to, from.bytes.size(), 3, 33));
  ASSERT_TRUE(pair.run_until_completed(0, 3));
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kOk);
  EXPECT_EQ(pair.completions[0][1].work_request, 2U);
  EXPECT_EQ(pair.completions[0][1].status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(pair.completions[0][2].status, CompletionStatus::kOk);
  ASSERT_EQ(pair.completions[1].size(), 2U);
  EXPECT_EQ(pair.completions[1][0].immediate, 11U);
  EXPECT_EQ(pair.completions[1][1].immediate, 33U);
  EXPECT_GT(pair.nic(1).counters().access_errors, 0U);
  EXPECT_LT(pair.nic(1).counters().access_errors, 1000U);
}

class SoftNicRefusal : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Opcode, SoftNicRefusal, testing::Bool(), [](const auto& with_immediate) {
  return with_immediate.param ? "WriteWithImm" : "Write";
});

TEST_P(SoftNicRefusal, OfAnUnknownKeyConcernsOneWriteOnly) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 10 * kMtu);
  const auto& to = pair.memory(1, 10 * kMtu);
  auto bad = SoftNicPair::write(from, to, 10 * kMtu);
  if (GetParam()) bad.opcode = Opcode::kWriteWithImm;
  bad.remote_key ^= 1;
  expect_only_middle_refused(pair, ends, from, to, bad);
}

TEST_P(SoftNicRefusal, BeyondTheBoundsConcernsOneWriteOnly) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 10 * kMtu);
  const auto& to = pair.memory(1, 10 * kMtu);
  auto bad = SoftNicPair::write(from, to, 10 * kMtu);
  if (GetParam()) bad.opcode = Opcode::kWriteWithImm;
  bad.remote += 1;  // only its last packet is beyond
  expect_only_middle_refused(pair, ends, from, to, bad);
}

TEST_P(SoftNicRefusal, OfReadOnlyMemoryConcernsOneWriteOnly) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 10 * kMtu, Access::kLocalRead, 1);
  const auto& to = pair.memory(1, 10 * kMtu);
  const auto& read_only = pair.memory(1, 10 * kMtu, Access::kLocalRead, 9);
  const auto before = read_only.bytes;
  auto bad = SoftNicPair::write(from, read_only, 10 * kMtu);
  if (GetParam()) bad.opcode = Opcode::kWriteWithImm;
  expect_only_middle_refused(pair, ends, from, to, bad);
  EXPECT_EQ(read_only.bytes, before);
}

// A peer that has joined properly, and knows where the owner has its memory.
TEST_P(SoftNicRefusal, OfTheOwnersAddressConcernsOneWriteOnly) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 10 * kMtu);
  const auto& to = pair.memory(1, 10 * kMtu);
  const auto& lent_to_others = pair.memory(1, 10 * kMtu, Access::kRemoteWrite, 9);
  const auto before = lent_to_others.bytes;
  auto knows_key = SoftNicPair::write(from, lent_to_others, 10 * kMtu);
  if (GetParam()) knows_key.opcode = Opcode::kWriteWithImm;
  knows_key.remote = reinterpret_cast<uint64_t>(lent_to_others.bytes.data());
  expect_only_middle_refused(pair, ends, from, to, knows_key);
  EXPECT_EQ(lent_to_others.bytes, before);
}

TEST_P(SoftNicRefusal, OfAnotherRegionsAddressConcernsOneWriteOnly) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 10 * kMtu);
  const auto& to = pair.memory(1, 10 * kMtu);
  const auto& lent_to_others = pair.memory(1, 10 * kMtu, Access::kRemoteWrite, 9);
  const auto before = lent_to_others.bytes;
  auto knows_base = SoftNicPair::write(from, lent_to_others, 10 * kMtu);
  if (GetParam()) knows_base.opcode = Opcode::kWriteWithImm;
  knows_base.remote_key = to.region.key;
  expect_only_middle_refused(pair, ends, from, to, knows_base);
  EXPECT_EQ(lent_to_others.bytes, before);
}

// Every refusal is lost on its way back at first.
TEST(SoftNicMemory, LostRefusalIsRepeated) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, kMtu);
  const auto& to = pair.memory(1, kMtu);
  auto bad = SoftNicPair::write(from, to, kMtu, 1);
  bad.remote_key ^= 1;
  int naks = 0;
  pair.lose = [&](size_t, Datagram& packet) {
    return packet.kind() == PacketKind::kNak && ++naks <= 2;
  };
  pair.post(0, ends[0], bad);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(naks, 3);
}

TEST(SoftNicMemory, DeregisteredLocalMemoryIsNotReadAgain) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = Bytes{1} << 30});
  const size_t size = 64 << 20;
  auto from = std::make_unique<std::vector<uint8_t>>(size);
  const auto region = pair.nic(0).register_memory(from->data(), size, Access::kLocalRead).value();
  const auto& to = pair.memory(1, size);
  pair.post(0, ends[0],
            {.id = 1,
             .local = from->data(),
             .remote = to.address(),
             .length = size,
             .local_key = region.key,
             .remote_key = to.region.key,
             .immediate = 1,
             .opcode = Opcode::kWriteWithImm});
  int lost = 0;
  pair.lose = [&](size_t side, Datagram&) { return side == 0 && ++lost % 10 == 0; };
  pair.run_for(Duration::from_ms(1));
  const uint64_t invalidations = pair.nic(0).invalidations();
  pair.nic(0).deregister_memory(region);
  EXPECT_NE(pair.nic(0).invalidations(), invalidations);
  from.reset();  // the address sanitizer sees every read from here on
  const auto received = to.bytes;
  const uint64_t packets = pair.nic(0).counters().data_packets_sent;
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kMemoryGone);
  // Packets that were never sent are not replaced by as many empty packets.
  EXPECT_LE(pair.nic(0).counters().data_packets_sent, 2 * packets);

  // The queue pair lives on, and the peer has not heard of the write that was taken back.
  const auto& other = pair.memory(0, 3 * kMtu, Access::kLocalRead, 5);
  pair.post(0, ends[0], SoftNicPair::write(other, to, 3 * kMtu, 2, 22));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_EQ(pair.completions[0][1].status, CompletionStatus::kOk);
  ASSERT_EQ(pair.completions[1].size(), 1U);
  EXPECT_EQ(pair.completions[1][0].immediate, 22U);
}

// The write is taken back at every moment of its life; afterwards others must still go through,
// with and without losses.
TEST(SoftNicMemory, TakingBackNeverBlocksTheQueuePair) {
  for (int after = 0; after < 60; ++after) {
    SoftNicPair pair;
    const auto ends = pair.connect({.work_requests = 4});
    pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = Bytes{1} << 30});
    const auto& from = pair.memory(0, 8 * kMtu);
    const auto& good = pair.memory(0, 2 * kMtu, Access::kLocalRead, 9);
    const auto& to = pair.memory(1, 8 * kMtu);
    int packets = 0;
    pair.lose = [&](size_t, Datagram&) { return ++packets % 5 == after % 7; };
    pair.post(0, ends[0], SoftNicPair::write(from, to, 8 * kMtu, 0, 100));
    pair.run_for(Duration::from_us(2) * after);
    pair.nic(0).deregister_memory(from.region);
    size_t posted = 1;
    for (uint64_t id = 1; id <= 12; ++id) {
      while (pair.post(0, ends[0], SoftNicPair::write(good, to, 2 * kMtu, id, id)) == 0) {
        ASSERT_TRUE(pair.run_until_completed(0, pair.completions[0].size() + 1)) << after;
      }
      ++posted;
    }
    ASSERT_TRUE(pair.run_until_completed(0, posted)) << after;
    size_t received = 0;
    for (const Completion& completion : pair.completions[1]) received += completion.immediate < 100;
    EXPECT_EQ(received, 12U) << after;
    for (size_t i = 1; i < posted; ++i) {
      EXPECT_EQ(pair.completions[0][i].status, CompletionStatus::kOk) << after;
    }
  }
}

TEST(SoftNicMemory, DeregisteredRemoteMemoryIsNotWrittenAgain) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = Bytes{1} << 30});
  const auto& from = pair.memory(0, 1 << 20);
  auto to = std::make_unique<std::vector<uint8_t>>(1 << 20);
  const auto region =
      pair.nic(1).register_memory(to->data(), to->size(), Access::kRemoteWrite).value();
  WorkRequest write{.id = 1,
                    .local = from.bytes.data(),
                    .remote = region.remote_address,
                    .length = 1 << 20,
                    .local_key = from.region.key,
                    .remote_key = region.key,
                    .opcode = Opcode::kWriteWithImm};
  pair.post(0, ends[0], write);
  pair.run_for(Duration::from_ms(1));
  pair.nic(1).deregister_memory(region);
  to.reset();  // the address sanitizer sees every write from here on
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kRemoteAccessError);
  EXPECT_TRUE(pair.completions[1].empty());
}

TEST(SoftNicMemory, DestroyedQueuePairCompletesNothing) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, kMtu);
  const auto& to = pair.memory(1, kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, kMtu, 1, 1));
  for (const Datagram& packet : pair.transmit(0)) pair.deliver(1, packet);
  pair.nic(1).destroy_queue_pair(ends[1]);
  pair.nic(0).destroy_queue_pair(ends[0]);
  pair.run_for(Duration::from_s(1));
  EXPECT_TRUE(pair.completions[0].empty());
  EXPECT_TRUE(pair.completions[1].empty());
  EXPECT_EQ(pair.nic(0).next_deadline(), Instant::never());
}

// --- packets ---

// A connected pair with a write under way, of which nothing has been delivered yet.
class SoftNicPacket : public testing::Test {
 protected:
  SoftNicPacket() {
    pair.post(0, ends[0], SoftNicPair::write(from, to, kMtu, 1, 1));
    packets = pair.transmit(0);
  }
  // The write still goes through, and nothing else has happened.
  void expect_harmless() {
    for (const Datagram& packet : packets) pair.deliver(1, packet);
    ASSERT_TRUE(pair.run_until_completed(0, 1));
    EXPECT_EQ(pair.completions[0].size(), 1U);
    EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kOk);
    EXPECT_EQ(pair.completions[1].size(), 1U);
    EXPECT_EQ(to.bytes, from.bytes);
    EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 0U);
  }
  const NicCounters& counters(size_t side) { return pair.nic(side).counters(); }

  SoftNicPair pair;
  SoftNicPair::Ends ends = pair.connect();
  const TestMemory& from = pair.memory(0, kMtu, Access::kLocalRead, 1);
  const TestMemory& to = pair.memory(1, kMtu);
  std::vector<Datagram> packets;
};

TEST_F(SoftNicPacket, MalformedIsCounted) {
  for (const size_t size : {0, 1, 11, 12, 43}) {
    Datagram cut = packets[0];
    cut.bytes.resize(size);
    pair.deliver(1, cut);
  }
  Datagram other = packets[0];
  other.bytes[0] = 0x0A;  // an opcode of the standard
  pair.deliver(1, other);
  EXPECT_EQ(counters(1).malformed, 6U);
  expect_harmless();
}

TEST_F(SoftNicPacket, WrongChecksumIsCounted) {
  Datagram flipped = packets[0];
  flipped.bytes[100] ^= 1;
  pair.deliver(1, flipped);
  EXPECT_EQ(counters(1).bad_checksum, 1U);

  auto ack = wire::encode_ack({.destination_qp = ends[0], .cumulative = 0}, {});
  ack.back() ^= 1;
  pair.deliver(0, {.bytes = ack});
  auto nak = wire::encode_nak({.destination_qp = ends[0], .psn = packets[0].data().psn});
  nak.back() ^= 1;
  pair.deliver(0, {.bytes = nak});
  EXPECT_EQ(counters(0).bad_checksum, 2U);
  expect_harmless();
}

TEST_F(SoftNicPacket, UnknownQueuePairIsCounted) {
  wire::DataHeader header = packets[0].data();
  header.destination_qp ^= 0x800000;
  const std::vector<uint8_t> payload(10);
  pair.deliver(1, {.bytes = wire::encode_data(header, payload, wire::Coverage::kFull)});
  const auto unconnected = pair.nic(1).create_queue_pair({}).value();
  header.destination_qp = unconnected;
  pair.deliver(1, {.bytes = wire::encode_data(header, payload, wire::Coverage::kFull)});
  EXPECT_EQ(counters(1).unknown_queue_pair, 2U);
  expect_harmless();
}

TEST_F(SoftNicPacket, WrongSourceIsCountedButNotAnotherPort) {
  pair.deliver(1, packets[0], test::test_address(3));
  EXPECT_EQ(counters(1).wrong_source, 1U);
  EXPECT_EQ(counters(1).data_packets_received, 0U);
  Address other_path = test::test_address(1);
  other_path.port = 9;
  pair.deliver(1, packets[0], other_path);
  EXPECT_EQ(counters(1).data_packets_received, 1U);
}

TEST_F(SoftNicPacket, OutOfWindowIsCounted) {
  const uint32_t window = SoftNicPair::default_config().window_packets;
  const std::vector<uint8_t> payload(10, 0xFF);
  for (const uint32_t ahead : {window, uint32_t{1} << 22, static_cast<uint32_t>(-window - 2)}) {
    wire::DataHeader header = packets[0].data();
    header.psn = (header.psn + ahead) & kPsnMask;
    pair.deliver(1, {.bytes = wire::encode_data(header, payload, wire::Coverage::kFull)});
  }
  EXPECT_EQ(counters(1).out_of_window, 3U);
  expect_harmless();
}

TEST_F(SoftNicPacket, AcknowledgementOfWhatWasNeverSentIsIgnored) {
  for (const uint32_t ahead : {2U, 100U, 1U << 22}) {
    const uint32_t psn = (packets[0].data().psn + ahead) & kPsnMask;
    const std::array<uint64_t, 1> bitmap{~uint64_t{0}};
    pair.deliver(0,
                 {.bytes = wire::encode_ack(
                      {.destination_qp = ends[0], .cumulative = psn, .echo_valid = true}, bitmap)});
  }
  pair.collect();
  EXPECT_TRUE(pair.completions[0].empty());
  expect_harmless();
}

TEST_F(SoftNicPacket, BitmapBeyondWhatWasSentIsIgnored) {
  const std::array<uint64_t, 2> bitmap{~uint64_t{1}, ~uint64_t{0}};
  pair.deliver(0, {.bytes = wire::encode_ack(
                       {.destination_qp = ends[0], .cumulative = packets[0].data().psn}, bitmap)});
  pair.collect();
  EXPECT_TRUE(pair.completions[0].empty());
  expect_harmless();
}

TEST_F(SoftNicPacket, RefusalOutOfTheWindowIsIgnored) {
  for (const uint32_t ahead : {1U, 1000U, static_cast<uint32_t>(-1)}) {
    const uint32_t psn = (packets[0].data().psn + ahead) & kPsnMask;
    pair.deliver(0, {.bytes = wire::encode_nak({.destination_qp = ends[0], .psn = psn})});
  }
  expect_harmless();
}

TEST_F(SoftNicPacket, WriteThatContradictsItselfIsRefused) {
  wire::DataHeader header = packets[0].data();
  header.psn = (header.psn + 1) & kPsnMask;
  header.length = 100;
  pair.deliver(
      1, {.bytes = wire::encode_data(header, std::vector<uint8_t>(60, 1), wire::Coverage::kFull)});
  EXPECT_EQ(counters(1).access_errors, 0U);
  header.psn = (header.psn + 1) & kPsnMask;
  header.length = 120;
  pair.deliver(
      1, {.bytes = wire::encode_data(header, std::vector<uint8_t>(60, 1), wire::Coverage::kFull)});
  header.length = 100;
  pair.deliver(
      1, {.bytes = wire::encode_data(header, std::vector<uint8_t>(60, 1), wire::Coverage::kFull)});
  EXPECT_EQ(counters(1).access_errors, 2U);
  pair.collect();
  EXPECT_TRUE(pair.completions[1].empty());
}

// The completion queue's owner is asleep: what does not fit waits at the sender.
TEST(SoftNicCompletions, FullQueueIsBackPressure) {
  SoftNicPair pair;
  const uint32_t kWrites = 4096;
  const auto ends = pair.connect({.work_requests = kWrites});
  for (uint32_t i = 0; i < kWrites; ++i) {
    pair.post(0, ends[0], {.id = i, .immediate = i, .opcode = Opcode::kWriteWithImm});
  }
  // Delivered by hand, without looking at the receiver's completions.
  const auto exchange = [&] {
    for (const Datagram& packet : pair.transmit(0)) pair.deliver(1, packet);
    pair.now = pair.now + Duration::from_us(20);
    for (const Datagram& packet : pair.transmit(1)) pair.deliver(0, packet);
    std::array<Completion, 64> sent;
    while (pair.nic(0).poll(sent) > 0) {
    }
  };
  for (uint32_t i = 0; i < 100; ++i) exchange();
  ASSERT_EQ(pair.nic(1).counters().completions_full, 0U);
  pair.post(0, ends[0], {.id = kWrites, .immediate = kWrites, .opcode = Opcode::kWriteWithImm});
  exchange();
  EXPECT_EQ(pair.nic(1).counters().completions_full, 1U);
  EXPECT_TRUE(pair.run_until_completed(1, kWrites + 1));
  EXPECT_EQ(pair.completions[1].back().immediate, kWrites);
}

}  // namespace
}  // namespace pacecar::hostile_test
