// Standard RC: how much all queue pairs of a NIC read at a time.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/rc_pair.h"

namespace pacecar::rc_reads_test {
namespace {

using test::Datagram;
using test::parse;
using test::rc_config;
using test::SoftNicPair;

constexpr Bytes kMtu = 1024;
constexpr Bytes kReceiveBytes = 64 * kMtu;

SoftNicConfig with_receive_buffer() {
  SoftNicConfig config = rc_config();
  config.receive_bytes = kReceiveBytes;
  return config;
}

// Several queue pairs of one flow, or of one each, and a read each that is longer than the buffer.
struct Readers {
  explicit Readers(bool own_flows) {
    for (uint64_t i = 0; i < 4; ++i) {
      ends.push_back(pair.connect({.flow = own_flows ? static_cast<FlowId>(i) : 0}));
      WorkRequest read =
          SoftNicPair::write(pair.memory(0, 2 * kReceiveBytes),
                             pair.memory(1, 2 * kReceiveBytes, Access::kRemoteRead), 0, i);
      read.length = 2 * kReceiveBytes;
      read.opcode = Opcode::kRead;
      pair.post(0, ends.back()[0], read);
    }
  }
  Bytes requested(const std::vector<Datagram>& sent) const {
    Bytes bytes = 0;
    for (const Datagram& request : sent) bytes += parse(request).length;
    return bytes;
  }

  SoftNicPair pair{with_receive_buffer()};
  std::vector<SoftNicPair::Ends> ends;
};

TEST(SoftNicRcReads, ReadsOfAllQueuePairsFitTheReceiveBuffer) {
  Readers readers(true);
  const Bytes first = readers.requested(readers.pair.transmit(0));
  EXPECT_GE(first, kReceiveBytes / 4);
  EXPECT_LE(first, kReceiveBytes / 2);
  EXPECT_TRUE(readers.pair.transmit(0).empty()) << "until something has arrived";
  ASSERT_TRUE(readers.pair.run_until_completed(0, readers.ends.size()));
  for (const Completion& completion : readers.pair.completions[0]) {
    EXPECT_EQ(completion.status, CompletionStatus::kOk);
  }
}

// However many reads the peer allows at a time: short responses would leave in short bursts.
TEST(SoftNicRcReads, ALongReadIsRequestedInLongPieces) {
  SoftNicPair pair{rc_config()};
  const auto ends = pair.connect();
  constexpr Bytes kLength = 200 * kMtu;
  WorkRequest read =
      SoftNicPair::write(pair.memory(0, kLength), pair.memory(1, kLength, Access::kRemoteRead), 0);
  read.length = kLength;
  read.opcode = Opcode::kRead;
  pair.post(0, ends[0], read);
  const auto requests = pair.transmit(0);
  ASSERT_EQ(requests.size(), 2U) << "a window of 128 packets";
  for (const Datagram& request : requests) EXPECT_EQ(parse(request).length, 64 * kMtu);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
}

// One turn has bursts of both readers, one after the other, until it is full.
TEST(SoftNicRcReads, ResponsesFillATurnInBurstsOfEachQueuePair) {
  SoftNicPair pair{rc_config()};
  constexpr Bytes kLength = 8 * kMtu;
  for (FlowId flow = 0; flow < 2; ++flow) {
    WorkRequest read = SoftNicPair::write(pair.memory(0, kLength),
                                          pair.memory(1, kLength, Access::kRemoteRead), kLength);
    read.opcode = Opcode::kRead;
    pair.post(0, pair.connect({.flow = flow})[0], read);
  }
  for (const Datagram& request : pair.transmit(0)) pair.deliver(1, request);
  std::array<TxPacket, 16> packets;
  ASSERT_EQ(pair.nic(1).poll_transmit(pair.now, packets), packets.size());
  const auto reader_of = [&](size_t i) {
    const auto header = packets[i].header;
    return std::vector(header.begin() + 5, header.begin() + 8);  // the destination queue pair
  };
  constexpr size_t kBurst = 4;
  EXPECT_EQ(reader_of(0), reader_of(kBurst - 1));
  EXPECT_NE(reader_of(0), reader_of(kBurst));
}

// Requests to a silent peer take up part of the read window, but only once.
TEST(SoftNicRcReads, ASilentPeerDoesNotKeepOthersFromReading) {
  Readers readers(false);
  SoftNicPair& pair = readers.pair;
  const uint32_t silent = test::lane_of(pair, 1, readers.ends[0][1]).queue_pair;
  const Instant end = pair.now + test::rc_config().silence_limit / 2;
  while (pair.completions[0].size() < readers.ends.size() - 1 && pair.now < end) {
    for (const Datagram& request : pair.transmit_for(0, Duration::from_us(50))) {
      if (parse(request).destination_qp != silent) pair.deliver(1, request);
    }
    for (const Datagram& response : pair.transmit_for(1, Duration::from_us(50))) {
      pair.deliver(0, response);
    }
    pair.collect();
  }
  EXPECT_EQ(pair.completions[0].size(), readers.ends.size() - 1);
}

TEST(SoftNicRcReads, AReaderThatGoesLeavesItsPartToOthers) {
  Readers readers(true);
  ASSERT_FALSE(readers.pair.transmit(0).empty()) << "of the first, and lost";
  readers.pair.nic(0).destroy_queue_pair(readers.ends[0][0]);
  EXPECT_GT(readers.requested(readers.pair.transmit_for(0, Duration::from_us(1))), 0U);
}

}  // namespace
}  // namespace pacecar::rc_reads_test
