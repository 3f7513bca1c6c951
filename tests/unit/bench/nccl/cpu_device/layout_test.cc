// NCCL's function numbers, and the works that its host code writes, version by version.
#include "bench/nccl/cpu_device/collectives/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/work.h"

namespace pacecar::layout_test {
namespace {

using nccl::cpu::Algorithm;
using nccl::cpu::Arguments;
using nccl::cpu::Batch;
using nccl::cpu::CollectiveWork;
using nccl::cpu::Function;
using nccl::cpu::function_table;
using nccl::cpu::Layout;
using nccl::cpu::layout_of;
using nccl::cpu::Operation;
using nccl::cpu::Protocol;
using nccl::cpu::Reduction;
using nccl::cpu::SendReceiveWork;
using nccl::cpu::Type;

constexpr std::array kVersions{22203, 22809, 22907};

// --- the function table ---

using Row = std::tuple<Operation, Reduction, Type, Algorithm, Protocol>;

Row row_of(const Function& function) {
  return {function.operation, function.reduction, function.type, function.algorithm,
          function.protocol};
}

// The rows as generate.py enumerates them.
std::vector<Row> rows_of(int version) {
  std::vector<Row> rows;
  using enum Algorithm;
  const auto add = [&](Operation operation, const std::vector<Algorithm>& algorithms,
                       Reduction reduction, Type type) {
    for (const Algorithm algorithm : algorithms) {
      for (int protocol = 0; protocol < 3; ++protocol) {
        rows.emplace_back(operation, reduction, type, algorithm, static_cast<Protocol>(protocol));
      }
    }
  };
  const auto add_all = [&](Operation operation, const std::vector<Algorithm>& algorithms) {
    for (int reduction = 0; reduction < 5; ++reduction) {
      for (int type = 0; type < (version < 22300 ? 10 : 12); ++type) {
        add(operation, algorithms, static_cast<Reduction>(reduction), static_cast<Type>(type));
      }
    }
  };
  std::vector<Algorithm> scattered{kRing, kCollnetDirect, kNvls};
  if (version >= 22300) scattered.push_back(kPat);
  rows.push_back(row_of({.operation = Operation::kSendReceive}));
  const Function plain;
  add(Operation::kAllGather, scattered, plain.reduction, plain.type);
  add(Operation::kBroadcast, {kRing}, plain.reduction, plain.type);
  if (version >= 22900) add(Operation::kAllGatherV, {kRing}, plain.reduction, plain.type);
  add_all(Operation::kAllReduce, {kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree});
  add_all(Operation::kReduce, {kRing});
  add_all(Operation::kReduceScatter, scattered);
  return rows;
}

TEST(FunctionTable, HasTheRowsOfEachVersion) {
  // 1 + (3 + 1) x 3 + 10 x 5 x (6 + 1 + 3) x 3, and so on.
  constexpr std::array<size_t, 3> kRows{1513, 1996, 1999};
  for (size_t i = 0; i < kVersions.size(); ++i) {
    std::vector<int> identity(kRows[i]);  // a row too many would be read behind its end
    std::iota(identity.begin(), identity.end(), 0);
    const auto table = function_table(*layout_of(kVersions[i]), identity.data());
    const auto rows = rows_of(kVersions[i]);
    ASSERT_EQ(rows.size(), kRows[i]);
    ASSERT_EQ(table.size(), rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      ASSERT_EQ(row_of(table[row]), rows[row]) << kVersions[i] << ", row " << row;
    }
  }
}

TEST(FunctionTable, LeavesOutRowsWithoutAKernel) {
  const auto rows = rows_of(22907);
  std::vector<int> ids(rows.size(), -1);
  ids[0] = 2;
  ids[1] = 0;
  ids.back() = 5;
  const auto table = function_table(*layout_of(22907), ids.data());
  ASSERT_EQ(table.size(), 6U);
  EXPECT_EQ(row_of(table[2]), rows[0]);
  EXPECT_EQ(row_of(table[0]), rows[1]);
  EXPECT_EQ(row_of(table[5]), rows.back());
  for (const size_t none : {1U, 3U, 4U}) EXPECT_EQ(table[none].operation, Operation::kNone);
}

TEST(FunctionTable, TakesTheFirstOfRowsThatShareAKernel) {
  const auto rows = rows_of(22809);
  std::vector<int> ids(rows.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i / 4);
  const auto table = function_table(*layout_of(22809), ids.data());
  ASSERT_EQ(table.size(), (rows.size() + 3) / 4);
  for (size_t id = 0; id < table.size(); ++id) EXPECT_EQ(row_of(table[id]), rows[4 * id]);
}

TEST(Layout, OfAnUnknownVersionIsNone) {
  for (const int version : {0, -1, 22202, 22204, 22808, 22810, 22906, 22908, 23000, 1 << 30}) {
    EXPECT_EQ(layout_of(version), nullptr) << version;
  }
}

// The structures of device.h, member by member, in which the versions differ.
struct Tree {
  int depth, up, down[3];
};
struct Ring {
  int prev, next, *user_ranks, index;
};
struct RingWithIndexes {
  int prev, next, *user_ranks, *rank_to_index, index;
};
template <typename RingOfVersion, size_t kNvlsInts>
struct Channel {
  void* peers;
  RingOfVersion ring;
  Tree tree, chain;
  int direct[27], nvls[kNvlsInts];
  void* work_fifo_done;
  uint64_t work_counter;
};
using Channel222 = Channel<Ring, 42>;  // its work counter is the end of the structure
using Channel228 = Channel<Ring, 40>;
using Channel229 = Channel<RingWithIndexes, 40>;
struct Communicator222 {
  int rank, ranks, node, nodes, buffers[3], p2p_chunk;
  void *work_consumed, *dense_to_user, *abort_flag, *channels;
};
struct Communicator228 {
  int rank, ranks, node, nodes, buffers[3], p2p_chunk;
  int is_all_nvlink;
  void *dense_to_user, *abort_flag, *channels, *rank_to_local, *work_started, *work_completed;
};

template <typename ChannelOfVersion>
void check_channel(int version) {
  const Layout& layout = *layout_of(version);
  EXPECT_EQ(layout.channel.ring_index,
            offsetof(ChannelOfVersion, ring.index) - offsetof(ChannelOfVersion, ring));
  EXPECT_EQ(layout.channel.tree, offsetof(ChannelOfVersion, tree));
  const bool counts = version > 22300;
  const size_t counter = offsetof(ChannelOfVersion, work_counter);
  EXPECT_EQ(layout.channel.work_counter, counts ? counter : nccl::cpu::kAbsent);
  EXPECT_EQ(layout.channel.bytes, (counter + (counts ? sizeof(uint64_t) : 0) + 15) / 16 * 16);
}

TEST(Layout, IsThatOfTheStructures) {
  check_channel<Channel222>(22203);
  check_channel<Channel228>(22809);
  check_channel<Channel229>(22907);
  const Layout& old = *layout_of(22203);
  EXPECT_EQ(old.comm.work_consumed, offsetof(Communicator222, work_consumed));
  EXPECT_EQ(old.comm.abort_flag, offsetof(Communicator222, abort_flag));
  EXPECT_EQ(old.comm.channel_array, (sizeof(Communicator222) + 15) / 16 * 16);
  EXPECT_EQ(old.comm.work_started, nccl::cpu::kAbsent);
  EXPECT_EQ(old.comm.work_completed, nccl::cpu::kAbsent);
  for (const int version : {22809, 22907}) {
    const Layout& layout = *layout_of(version);
    EXPECT_EQ(layout.comm.work_consumed, nccl::cpu::kAbsent);
    EXPECT_EQ(layout.comm.abort_flag, offsetof(Communicator228, abort_flag));
    EXPECT_EQ(layout.comm.work_started, offsetof(Communicator228, work_started));
    EXPECT_EQ(layout.comm.work_completed, offsetof(Communicator228, work_completed));
    EXPECT_EQ(layout.comm.channel_array, (sizeof(Communicator228) + 15) / 16 * 16);
  }
}

TEST(Layout, NamesItsVersions) {
  const std::string names = nccl::cpu::known_versions();
  for (const int version : kVersions) {
    const Layout* const layout = layout_of(version);
    ASSERT_NE(layout, nullptr);
    EXPECT_NE(names.find(layout->name), std::string::npos) << names;
  }
}

// --- arguments and batches ---

template <typename T>
void set(std::vector<char>& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

TEST(Arguments, AreReadWhereNcclWritesThem) {
  std::vector<char> bytes(64);
  std::vector<char> works(256);
  char communicator = 0;
  set(bytes, 0, &communicator);
  set(bytes, 8, uint64_t{0xf00000000000000f});
  set(bytes, 16, uint8_t{1});
  set(bytes, 20, uint32_t{255});
  set(bytes, 24, works.data());
  // Jump 0x2001, extended, of kind 1, function 0x5003.
  set(bytes, 32 + 16, uint32_t{0x2001U | 1U << 14 | 1U << 15 | 0x5003U << 17});
  set(bytes, 32 + 20, uint32_t{0x80000010});
  set(bytes, 32 + 24, uint64_t{0x8000000000000001});
  const Arguments arguments(bytes.data());
  EXPECT_EQ(arguments.communicator, &communicator);
  EXPECT_EQ(arguments.channel_mask, 0xf00000000000000f);
  EXPECT_EQ(arguments.storage, Arguments::Storage::kFifo);
  EXPECT_EQ(arguments.work_at(0x80000010), works.data() + 0x10);
  EXPECT_EQ(arguments.work_at(256 + 96), works.data() + 96);
  const Batch batch(arguments, 1);
  EXPECT_EQ(batch.next_jump, 0x2001U);
  EXPECT_TRUE(batch.extended_by_next);
  EXPECT_EQ(batch.kind, Batch::Kind::kCollective);
  EXPECT_EQ(batch.function, 0x5003U);
  EXPECT_EQ(batch.offset, 0x80000010);
  EXPECT_EQ(batch.works, 0x8000000000000001);
  const Batch none(arguments, 0);
  EXPECT_EQ(none.next_jump, 0U);
  EXPECT_FALSE(none.extended_by_next);
  EXPECT_EQ(none.kind, Batch::Kind::kSendReceive);
}

TEST(Arguments, HoldTheWorksWhereTheStorageSaysSo) {
  std::vector<char> bytes(64);
  std::vector<char> works(16);
  set(bytes, 24, works.data());
  EXPECT_EQ(Arguments(bytes.data()).work_at(48), bytes.data() + 48);
  set(bytes, 16, uint8_t{2});
  set(bytes, 20, ~uint32_t{0});
  EXPECT_EQ(Arguments(bytes.data()).work_at(8), works.data() + 8);
}

// --- collectives ---

struct Places {  // of ncclDevWorkColl
  size_t bytes, receive, send, counts, chunks, operand;
};
Places places(int version) {
  return version < 22300 ? Places{64, 8, 16, 24, 48, 56} : Places{96, 8, 16, 56, 80, 88};
}

TEST(CollectiveWork, IsReadWhereEachVersionWritesIt) {
  for (const int version : kVersions) {
    const Layout& layout = *layout_of(version);
    const Places at = places(version);
    EXPECT_EQ(layout.collective.bytes, at.bytes);
    std::vector<char> work(at.bytes);
    char sent = 0;
    char received = 0;
    set(work, 0, uint32_t{3U | 17U << 8 | 16U << 16});
    set(work, 4, 21);
    set(work, at.receive, &received);
    set(work, at.send, &sent);
    set(work, at.operand, uint64_t{0x1234567890});
    const CollectiveWork read(layout, work.data());
    EXPECT_EQ(read.lowest_channel(), 3);
    EXPECT_EQ(read.highest_channel(), 17);
    EXPECT_EQ(read.root(), 21);
    EXPECT_EQ(read.receive(), &received);
    EXPECT_EQ(read.send(), &sent);
    EXPECT_EQ(read.operand(8), 0x1234567890U);
    EXPECT_FALSE(read.peer_registered());
    EXPECT_FALSE(read.net_registered());
    EXPECT_FALSE(read.profiled());
    EXPECT_EQ(CollectiveWork(layout, std::vector<char>(at.bytes).data()).send(), nullptr);
  }
}

TEST(CollectiveWork, HasAnOperandThatMayBeAPointer) {
  for (const int version : kVersions) {
    const Places at = places(version);
    std::vector<char> work(at.bytes);
    const uint64_t pointed = 0xaabbccddeeff1122;
    set(work, 0, uint32_t{1U << 24});
    set(work, at.operand, &pointed);
    const CollectiveWork read(*layout_of(version), work.data());
    EXPECT_EQ(read.operand(8), pointed);
    EXPECT_EQ(read.operand(2), pointed & 0xffff);
    EXPECT_EQ(read.operand(1), pointed & 0xff);
  }
}

TEST(CollectiveWork, KnowsItsFlagsByVersion) {
  using Flags =
      std::array<bool, 4>;  // registered with peers, with the NIC; one rank a node; profiled
  const auto flags = [](int version, unsigned bit) {
    std::vector<char> work(96);
    set(work, 0, uint32_t{1U << bit});
    const CollectiveWork read(*layout_of(version), work.data());
    return Flags{read.peer_registered(), read.net_registered(), read.one_rank_per_node(),
                 read.profiled()};
  };
  for (unsigned bit = 24; bit < 32; ++bit) {
    EXPECT_EQ(flags(22203, bit), (Flags{bit == 25 || bit == 26, false, false, false})) << bit;
    for (const int version : {22809, 22907}) {
      EXPECT_EQ(flags(version, bit), (Flags{bit == 25, bit == 26, bit == 30, bit == 31})) << bit;
    }
  }
}

RC_GTEST_PROP(CollectiveWorkProperty, PartsOfTheChannelsFollowEachOther, ()) {
  const int version = *rc::gen::elementOf(std::vector<int>(kVersions.begin(), kVersions.end()));
  const Places at = places(version);
  const auto lowest = *rc::gen::inRange<uint32_t>(0, 32);
  const uint32_t channels =
      *rc::gen::oneOf(rc::gen::inRange<uint32_t>(1, 4), rc::gen::inRange<uint32_t>(1, 33));
  const auto count = [] { return *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40); };
  const uint64_t low = count();
  const uint64_t middle = channels > 2 ? count() : 0;
  const uint64_t high = channels > 1 ? count() : 0;
  std::array<uint64_t, 3> grains{};
  for (uint64_t& one : grains) one = *rc::gen::inRange<uint64_t>(1, 1 << 21);
  std::vector<char> work(at.bytes);
  set(work, 0, lowest | (lowest + channels - 1) << 8);
  set(work, at.counts, low);
  set(work, at.counts + 8, middle);
  set(work, at.counts + 16, high);
  set(work, at.chunks, grains[0] | grains[1] << 21 | grains[2] << 42);
  const auto element = *rc::gen::element<size_t>(1, 2, 4, 8);
  const auto grain = *rc::gen::element<size_t>(16, 1920, 512);
  const CollectiveWork read(*layout_of(version), work.data());
  const uint64_t total = low + (channels > 2 ? (channels - 2) * middle : 0) + high;
  uint64_t end = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    const auto part = read.part(static_cast<int>(lowest + i), grain, element);
    const size_t which = i == 0 ? 0 : i + 1 == channels ? 2 : 1;
    RC_ASSERT(part.total == total);
    RC_ASSERT(part.begin == end);
    RC_ASSERT(part.count == (which == 0 ? low : which == 1 ? middle : high));
    RC_ASSERT(part.chunk == grains[which] * (grain / element));
    end = part.begin + part.count;
  }
  RC_ASSERT(end == total);
}

// --- send and receive ---

TEST(SendReceiveWork, IsReadWhereNcclWritesIt) {
  std::vector<char> work(48);
  char sent = 0;
  char received = 0;
  set(work, 0, &sent);
  set(work, 8, &received);
  set(work, 16, size_t{1} << 33);
  set(work, 24, size_t{77});
  set(work, 32, 5);
  set(work, 36, 6);
  set(work, 40, std::array<uint8_t, 7>{8, 3, 4, 2, 15 << 3, 7, 0b10});
  const SendReceiveWork read(*layout_of(22907), work.data());
  EXPECT_EQ(read.send().address, &sent);
  EXPECT_EQ(read.send().bytes, size_t{1} << 33);
  EXPECT_EQ(read.send().peer, 5);
  EXPECT_EQ(read.send().channels, 4U);
  EXPECT_EQ(read.send().chunk, size_t{1} << 17);
  EXPECT_FALSE(read.send().ll);
  EXPECT_EQ(read.receive().address, &received);
  EXPECT_EQ(read.receive().bytes, 77U);
  EXPECT_EQ(read.receive().peer, 6);
  EXPECT_EQ(read.receive().channels, 2U);
  EXPECT_EQ(read.receive().chunk, 7U);
  EXPECT_TRUE(read.receive().ll);
  EXPECT_FALSE(read.send().net_registered);
  EXPECT_FALSE(read.receive().net_registered);
  EXPECT_FALSE(read.peer_registered());
  EXPECT_FALSE(read.profiled());
}

TEST(SendReceiveWork, KnowsItsFlags) {
  for (unsigned bit = 0; bit < 7; ++bit) {
    std::vector<char> work(48);
    set(work, 46, static_cast<uint8_t>(1U << bit));
    for (const int version : kVersions) {
      const SendReceiveWork read(*layout_of(version), work.data());
      EXPECT_EQ(read.send().ll, bit == 0);
      EXPECT_EQ(read.receive().ll, bit == 1);
      EXPECT_EQ(read.send().net_registered, bit == 2);
      EXPECT_EQ(read.receive().net_registered, bit == 3);
      EXPECT_EQ(read.peer_registered(), bit == 4 || bit == 5);
      EXPECT_EQ(read.profiled(), version > 22300 && bit == 6);
    }
  }
}

// NCCL's host code looks for the greatest of these that is not above the size that it wants.
TEST(SendReceiveWork, HasChunksOfEightBits) {
  for (unsigned code = 0; code < 256; ++code) {
    std::vector<char> work(48);
    set(work, 44, static_cast<uint8_t>(code));
    // Small numbers are themselves; of others, four bits matter, the first of them set.
    const size_t expected = code < 8 ? code : size_t{8 + code % 8} << (code / 8 - 1);
    EXPECT_EQ(SendReceiveWork(*layout_of(22907), work.data()).send().chunk, expected) << code;
  }
}

RC_GTEST_PROP(SendReceiveWorkProperty, ChannelsCarryEachByteOnce, ()) {
  const int version = *rc::gen::elementOf(std::vector<int>(kVersions.begin(), kVersions.end()));
  const uint32_t logarithm = *rc::gen::inRange<uint32_t>(0, 7);
  const uint32_t channels = 1U << logarithm;
  const auto base = *rc::gen::inRange<uint32_t>(0, channels);
  const auto used = *rc::gen::inRange<uint32_t>(1, channels + 1);
  const auto bytes =
      *rc::gen::oneOf(rc::gen::inRange<size_t>(0, 3 * 4096), rc::gen::inRange<size_t>(0, 10 << 20));
  std::vector<char> work(48);
  set(work, 16, bytes);
  set(work, 40,
      std::array<uint8_t, 4>{static_cast<uint8_t>(channels), static_cast<uint8_t>(base),
                             static_cast<uint8_t>(used), 0});
  const Layout& layout = *layout_of(version);
  const SendReceiveWork read(layout, work.data());
  const auto send = read.send();
  uint32_t carrying = 0;
  size_t begin = 0;
  size_t end = 0;
  for (uint32_t channel = 0; channel < channels; ++channel) {
    if (read.part(send, static_cast<int>(channel), begin, end)) ++carrying;
    RC_ASSERT(!read.part(read.receive(), static_cast<int>(channel), begin, end));
  }
  RC_ASSERT(carrying == used);
  // The channel of a part, as NCCL's host code computes it.
  size_t expected = 0;
  for (uint32_t part = 0; part < used; ++part) {
    uint32_t distance = part;
    if (version < 22300) {
      distance = 0;
      for (uint32_t bit = 0; bit < logarithm; ++bit) {
        distance |= (part >> bit & 1) << (logarithm - 1 - bit);
      }
    }
    const auto channel = static_cast<int>((base + distance) % channels);
    RC_ASSERT(read.part(send, channel, begin, end));
    RC_ASSERT(begin == expected);
    RC_ASSERT(end >= begin);
    RC_ASSERT(begin % 4096 == 0 || begin == bytes);
    expected = end;
  }
  RC_ASSERT(expected == bytes);
}

}  // namespace
}  // namespace pacecar::layout_test
