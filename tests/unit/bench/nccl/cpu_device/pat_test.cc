// By PAT: which pieces a rank's neighbours get, in which messages and order. Ranks with a real GPU,
// and NCCL's proxy threads, expect the same messages. The neighbours are reference peers.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "tests/support/device_world.h"
#include "tests/support/transfer_neighbours.h"

namespace pacecar::pat_test {
namespace {

using nccl::cpu::Algorithm;
using nccl::cpu::Operation;
using test::Bytes;
using test::DeviceLink;
using test::Neighbour;
using enum test::Neighbour::Role;

constexpr size_t kChunk = 512;
constexpr size_t kNone = 0;  // an empty place
// The distances of the pieces in each message, to the neighbour at 1, 2, 4 and so on.
using Messages = std::vector<std::vector<std::vector<size_t>>>;

struct Case {
  size_t ranks;
  size_t count;  // of a rank's share, at most a chunk
  Messages gathered;
  Messages reduced;
};
const std::vector<Case> kCases{
    {2, kChunk, {{{1}}}, {{{1}}}},
    {3, 1, {{{1}}, {{2}}}, {{{1}}, {{2}}}},
    {5, kChunk, {{{3}, {1}}, {{2}}, {{4}}}, {{{3}, {1}}, {{2}}, {{4}}}},
    // Two small pieces have room in a message; no rank has the distances 7, 6 and 5.
    {5, 100, {{{3}, {1}}, {{2}}, {{4}}}, {{{kNone, 3}, {kNone, 1}}, {{kNone, 2}}, {{4}}}},
    {6, 200, {{{1, 3}, {5}}, {{2}}, {{4}}}, {{{kNone, 3}, {5, 1}}, {{kNone, 2}}, {{4}}}},
    {6, 100, {{{1, 3, 5}}, {{2}}, {{4}}}, {{{kNone, 3, 5, 1}}, {{kNone, 2}}, {{4}}}},
    {8, 400, {{{1}, {3}, {5}, {7}}, {{2}, {6}}, {{4}}}, {{{7}, {3}, {5}, {1}}, {{6}, {2}}, {{4}}}},
    {8, 60, {{{1, 3, 5, 7}}, {{2, 6}}, {{4}}}, {{{7, 3, 5, 1}}, {{6, 2}}, {{4}}}},
};

void add(Bytes& to, const Bytes& other) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<char>(to[i] + other[i]);
}

// Rank 1: its input and the data from its neighbours, by distances.
class OneRank {
 public:
  OneRank(const Case& all, bool reduces)
      : case_(all),
        reduces_(reduces),
        input_(test::random_bytes(all.count * (reduces ? all.ranks : 1), 1)),
        received_(test::random_transfers(std::vector(all.ranks, all.count), 2)) {}

  Bytes input(size_t distance) const {
    if (!reduces_) return input_;
    const auto begin = input_.begin() + static_cast<long>(share(distance) * case_.count);
    return {begin, begin + static_cast<long>(case_.count)};
  }
  // All that is added to the sum here: those whose lowest bit was added to the distance.
  Bytes sum(size_t distance) const {
    Bytes all = input(distance);
    for (size_t bit = 1; distance + bit < case_.ranks && (distance & bit) == 0; bit *= 2) {
      add(all, received_[distance + bit]);
    }
    return all;
  }
  Bytes sent(size_t distance) const {
    if (reduces_) return sum(distance);
    const size_t parent = distance & (distance - 1);
    return parent == 0 ? input_ : received_[parent];
  }
  Bytes expected() const {
    if (reduces_) return sum(0);
    Bytes all(case_.ranks * case_.count);
    for (size_t distance = 0; distance < case_.ranks; ++distance) {
      std::ranges::copy(distance == 0 ? input_ : received_[distance],
                        all.begin() + static_cast<long>(share(distance) * case_.count));
    }
    return all;
  }
  std::vector<Bytes> messages(size_t way, bool to_neighbour) const {
    std::vector<Bytes> all;
    for (const auto& pieces : (reduces_ ? case_.reduced : case_.gathered)[way]) {
      Bytes& message = all.emplace_back();
      for (const size_t piece : pieces) {
        const Bytes bytes = piece == kNone ? Bytes(case_.count)
                            : to_neighbour ? sent(piece)
                                           : received_[piece];
        message.insert(message.end(), bytes.begin(), bytes.end());
      }
    }
    return all;
  }

  Bytes run() const {
    const test::ProtocolUse use{.bytes = {.simple = kChunk}};
    const nccl::cpu::Layout& layout = *nccl::cpu::layout_of(22907);
    test::DeviceCommunicator communicator(layout, kRank, static_cast<int>(case_.ranks), 1,
                                          use.bytes);
    std::deque<DeviceLink> links;
    std::deque<Neighbour> neighbours;
    for (size_t way = 0; size_t{1} << way < case_.ranks; ++way) {
      const size_t far = size_t{1} << way;
      for (const bool sends : {true, false}) {
        DeviceLink& link = links.emplace_back(use.bytes, kChunk, DeviceLink::Fifo::kInOrder);
        const size_t peer = share(sends == reduces_ ? far : case_.ranks - far);
        link.write_info(communicator.info(0, static_cast<int>(peer), sends, 0), 0);
        neighbours.emplace_back(link, use, sends ? kReceives : kSends, messages(way, sends));
      }
    }
    Bytes output(expected().size());
    const auto work = test::CollectiveFields{
        .send = input_.data(),
        .receive = output.data(),
        .counts = {case_.count, 0,
                   0}}.bytes(layout);
    const nccl::cpu::Block block(layout, communicator.address(), 0);
    const nccl::cpu::Function function{
        .operation = reduces_ ? Operation::kReduceScatter : Operation::kAllGather,
        .algorithm = Algorithm::kPat};
    const nccl::cpu::CollectiveWork one(layout, work.data());
    nccl::cpu::Fiber fiber(collective(block, function, one));
    return run_together(fiber, neighbours) ? output : Bytes();
  }

 private:
  static constexpr int kRank = 1;

  size_t share(size_t distance) const { return (kRank + distance) % case_.ranks; }

  const Case& case_;
  bool reduces_;
  Bytes input_;
  std::vector<Bytes> received_;
};

TEST(Pat, MessagesAreThoseOfNccl) {
  for (const Case& one : kCases) {
    for (const bool reduces : {false, true}) {
      SCOPED_TRACE(std::to_string(one.ranks) + " ranks, " + std::to_string(one.count) + " bytes, " +
                   (reduces ? "reduced" : "gathered"));
      const OneRank rank(one, reduces);
      EXPECT_EQ(rank.run(), rank.expected());
    }
  }
}

}  // namespace
}  // namespace pacecar::pat_test
