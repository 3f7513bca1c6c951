// Broadcasts of different roots that NCCL makes one kernel (AllGatherV).
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "tests/support/device_world.h"
#include "tests/support/transfer_neighbours.h"

namespace pacecar::broadcasts_test {
namespace {

using nccl::cpu::BroadcastWork;
using nccl::cpu::Function;
using nccl::cpu::Operation;
using nccl::cpu::Protocol;
using test::Bytes;
using test::DeviceLink;
using test::Neighbour;
using test::put;
using enum test::Neighbour::Role;

constexpr std::array kProtocols{Protocol::kLl, Protocol::kLl128, Protocol::kSimple};
constexpr uint32_t kChunk = 400;

const nccl::cpu::Layout& layout() { return *nccl::cpu::layout_of(22907); }

// ncclDevWorkBcast.
std::vector<char> work_bytes(int from_root, const char* send, char* receive, size_t bytes) {
  std::vector<char> work(48);
  put(work.data(), 0, from_root);
  put(work.data(), 4, kChunk);
  put(work.data(), 8, send);
  put(work.data(), 16, receive);
  put(work.data(), 24, bytes);
  return work;
}

Bytes part(const Bytes& of, size_t begin, size_t count) {
  const auto at = of.begin() + static_cast<long>(begin);
  return {at, at + static_cast<long>(count)};
}

TEST(Broadcasts, TakeTurns) {
  const auto sent = test::random_transfers({900, 400, 30}, 1);
  for (const Protocol protocol : kProtocols) {
    const test::ProtocolUse use{.protocol = protocol};
    test::DeviceCommunicator communicator(layout(), 1, 3, 1);
    communicator.set_ring(0, {1, 2, 0});
    std::deque<DeviceLink> links;
    std::deque<Neighbour> neighbours;
    const auto neighbour = [&](int peer, bool sends, const std::vector<Bytes>& transfers) {
      DeviceLink& link =
          links.emplace_back(use.bytes, use.bytes.simple, DeviceLink::Fifo::kInOrder);
      link.write_info(communicator.info(0, peer, sends, 0), 0);
      neighbours.emplace_back(link, use, sends ? kReceives : kSends, transfers);
    };
    neighbour(2, true,
              {part(sent[0], 0, 400), sent[1], part(sent[0], 400, 400), part(sent[0], 800, 100)});
    neighbour(0, false, {sent[1], sent[2]});
    std::vector<Bytes> received{Bytes(900), Bytes(400), Bytes(30)};
    std::vector<std::vector<char>> bytes;
    std::vector<BroadcastWork> works;
    for (size_t i = 0; i < 3; ++i) {
      bytes.push_back(work_bytes(static_cast<int>(i), i == 0 ? sent[0].data() : nullptr,
                                 received[i].data(), sent[i].size()));
      works.emplace_back(bytes.back().data());
    }
    const nccl::cpu::Block block(layout(), communicator.address(), 0);
    nccl::cpu::Fiber fiber(broadcasts(block, protocol, works));
    ASSERT_TRUE(run_together(fiber, neighbours));
    EXPECT_EQ(received, sent);
  }
}

TEST(Broadcasts, AreFoundInBatchesThatExtendOneAnother) {
  constexpr int kRanks = 4;
  const auto sent = test::random_transfers({1, 5000, 0, 777}, 1);
  for (const Protocol protocol : kProtocols) {
    test::DeviceWorld world(layout(), kRanks, 1, {}, [](int) { return DeviceLink::Fifo::kNone; });
    const std::array ring{2, 0, 3, 1};
    world.set_ring(0, {ring.begin(), ring.end()});
    std::vector<std::vector<Bytes>> received(kRanks);
    std::vector<test::LaunchArguments> arguments;
    for (size_t place = 0; place < kRanks; ++place) {
      const auto rank = static_cast<size_t>(ring[place]);
      auto& all = received[rank] = {Bytes(1), Bytes(5000), Bytes(), Bytes(777)};
      all[rank] = sent[rank];  // in place
      auto& own = arguments.emplace_back(world.rank(rank).address(), 1);
      for (size_t back = 0; back < kRanks; ++back) {
        const auto root = static_cast<size_t>(ring[(place + kRanks - back) % kRanks]);
        if (sent[root].empty()) continue;
        own.add_layer(test::LaunchArguments::Kind::kBroadcasts, 0,
                      {work_bytes(static_cast<int>(back), back == 0 ? all[root].data() : nullptr,
                                  all[root].data(), sent[root].size())},
                      true);
      }
    }
    const nccl::cpu::Library library{
        layout(), {Function{.operation = Operation::kAllGatherV, .protocol = protocol}}};
    ASSERT_TRUE(test::DeviceWorld::run(library, arguments, 1));
    for (const auto& all : received) EXPECT_EQ(all, sent);
  }
}

}  // namespace
}  // namespace pacecar::broadcasts_test
