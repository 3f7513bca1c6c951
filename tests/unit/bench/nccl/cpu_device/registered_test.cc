// Buffers that are registered with the NIC: it reads sent data and writes received data in
// the memory of the user. The NIC's part is played by reference peers.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "tests/support/device_world.h"
#include "tests/support/transfer_neighbours.h"

namespace pacecar::registered_test {
namespace {

using nccl::cpu::Arithmetic;
using nccl::cpu::Fiber;
using nccl::cpu::Protocol;
using nccl::cpu::Reduction;
using nccl::cpu::SendReceiveWork;
using nccl::cpu::Task;
using nccl::cpu::Transfers;
using nccl::cpu::Type;
using test::Bytes;
using test::DeviceLink;
using test::Middle;
using test::Neighbour;
using test::ProtocolUse;
using test::random_bytes;
using test::random_transfers;
using test::run_together;
using test::SendReceiveFields;
using enum test::Neighbour::Role;
using Fifo = DeviceLink::Fifo;
using Transfer = Transfers::Transfer;

constexpr std::array kUses{
    ProtocolUse{.protocol = Protocol::kSimple},
    ProtocolUse{.protocol = Protocol::kSimple, .slices = 2, .slice_steps = 2}};
constexpr std::array<int, 1> kFirst{1};
constexpr std::array<int, 1> kSecond{2};
const std::vector<size_t> kSizes{2000, 0, 1, 16, 513, 1024, 2048, 7, 1500, 999};

const Arithmetic kBytes(Reduction::kSum, Type::kUint8, 0, false);

Task run_registered(const nccl::cpu::Block& block, ProtocolUse use, nccl::cpu::Ends ends,
                    std::vector<Transfer> all) {
  ends.registered = true;
  Transfers transfers(block, use.protocol, {use.slices, use.slice_steps}, kBytes, ends);
  for (const Transfer& one : all) co_await transfers.run(one);
  co_await transfers.leave_buffers();
}

bool untouched(DeviceLink& link) {
  const char* const begin = link.begin_of(Protocol::kSimple);
  return Bytes(begin, begin + 8 * ProtocolUse{}.bytes.simple) ==
         Bytes(8 * ProtocolUse{}.bytes.simple);
}

std::vector<char*> addresses(std::vector<Bytes>& all) {
  std::vector<char*> addresses;
  for (Bytes& one : all) addresses.push_back(one.data());
  return addresses;
}
// Buffers of all sizes, 0 included.
std::vector<Bytes> buffers() {
  std::vector<Bytes> all;
  for (const size_t size : kSizes) all.emplace_back(size).reserve(1);
  return all;
}

TEST(Registered, BuffersAreReadWhereTheyAre) {
  for (const ProtocolUse& use : kUses) {
    Middle middle(use, Fifo::kDirect);
    auto sent = random_transfers(kSizes, 1);
    for (Bytes& one : sent) one.reserve(1);
    std::vector<Transfer> transfers;
    for (const Bytes& one : sent) {
      transfers.push_back({.sends = true, .input = one.data(), .elements = one.size()});
    }
    Fiber fiber(run_registered(middle.block(), use, {.send_to = kFirst}, transfers));
    std::deque<Neighbour> nic;
    nic.emplace_back(middle.to(1), use, kReceives, sent, 0, addresses(sent));
    ASSERT_TRUE(run_together(fiber, nic));
    EXPECT_TRUE(untouched(middle.to(1)));
    EXPECT_EQ(middle.to(1).tail(), nic[0].peer().step());
  }
}

TEST(Registered, BuffersAreNotLeftBeforeTheNicHasReadThem) {
  for (const ProtocolUse& use : kUses) {
    Middle middle(use, Fifo::kDirect);
    const Bytes sent = random_bytes(100, 1);
    Fiber fiber(run_registered(middle.block(), use, {.send_to = kFirst},
                               {{.sends = true, .input = sent.data(), .elements = 100}}));
    for (int turn = 0; turn < 20; ++turn) fiber.advance();
    EXPECT_FALSE(fiber.ended());
    const uint64_t steps = use.slices * use.slice_steps;
    EXPECT_EQ(middle.to(1).tail(), steps);
    for (uint64_t step = 0; step < steps; step += use.slice_steps) {
      EXPECT_FALSE(fiber.ended());
      middle.to(1).announce(step, DeviceLink::kNothing);
      fiber.advance();
    }
    EXPECT_TRUE(fiber.ended());
  }
}

TEST(Registered, BuffersAreWrittenWhereTheyAre) {
  for (const ProtocolUse& use : kUses) {
    Middle middle(use, Fifo::kDirect);
    const auto sent = random_transfers(kSizes, 1);
    std::vector<Bytes> received = buffers();
    std::vector<Transfer> transfers;
    for (Bytes& one : received) {
      transfers.push_back(
          {.receives = true, .output = one.data(), .place = one.data(), .elements = one.size()});
    }
    EXPECT_EQ(middle.from(1).announced(0), DeviceLink::kNothing);
    Fiber fiber(run_registered(middle.block(), use, {.receive_from = kFirst}, transfers));
    fiber.advance();
    EXPECT_EQ(middle.from(1).announced(0), 0);  // which allows the NIC to write
    std::deque<Neighbour> nic;
    nic.emplace_back(middle.from(1), use, kSends, sent, 0, addresses(received));
    ASSERT_TRUE(run_together(fiber, nic));
    EXPECT_EQ(received, sent);
    EXPECT_TRUE(untouched(middle.from(1)));
  }
}

// The NIC reaches the buffers of one side only: the other rank is on the same host.
TEST(Registered, BuffersAreCopiedWhereTheNicCannotReachThem) {
  for (const ProtocolUse& use : kUses) {
    for (const bool receives_direct : {false, true}) {
      Middle direct(use, Fifo::kDirect);
      Middle other(use);
      DeviceLink& from = receives_direct ? direct.from(1) : other.from(1);
      DeviceLink& to = receives_direct ? other.to(2) : direct.to(2);
      from.write_info(direct.communicator().info(0, 1, false, 0), 0);
      to.write_info(direct.communicator().info(0, 2, true, 0), 0);
      const auto inputs = random_transfers(kSizes, 1);
      const auto sent = random_transfers(kSizes, 50);
      auto expected = inputs;
      std::vector<Bytes> outputs = buffers();
      std::vector<Transfer> transfers;
      for (size_t i = 0; i < kSizes.size(); ++i) {
        kBytes.reduce(expected[i].data(), sent[i].data(), kSizes[i]);
        transfers.push_back({.receives = true,
                             .sends = true,
                             .input = inputs[i].data(),
                             .output = outputs[i].data(),
                             .place = outputs[i].data(),
                             .elements = kSizes[i]});
      }
      Fiber fiber(run_registered(direct.block(), use, {kFirst, kSecond}, transfers));
      const auto places = addresses(outputs);
      std::deque<Neighbour> neighbours;
      neighbours.emplace_back(from, use, kSends, sent, 0,
                              receives_direct ? places : std::vector<char*>());
      neighbours.emplace_back(to, use, kReceives, expected, 0,
                              receives_direct ? std::vector<char*>() : places);
      ASSERT_TRUE(run_together(fiber, neighbours));
      EXPECT_EQ(outputs, expected);
    }
  }
}

// Whatever sends, its user may write into the buffer when the operation has ended.
TEST(Registered, BuffersAreNotLeftByOperationsEither) {
  const Bytes sent = random_bytes(512, 1);
  Bytes received(512);
  SendReceiveFields fields;
  fields.send = {sent.data(), sent.size(), 1, 1, 40, false, true};
  const auto send = fields.bytes();
  const test::CollectiveFields root{.send = sent.data(),
                                    .receive = received.data(),
                                    .counts = {sent.size(), 0, 0},
                                    .net_registered = true};
  const auto broadcast = root.bytes(*nccl::cpu::layout_of(22907));
  for (const int index : {0, 1}) {
    Middle middle(ProtocolUse{}, Fifo::kDirect, 0, index);
    middle.communicator().set_ring(0, {0, 1, 2, 3});
    const auto& layout = middle.block().layout();
    const nccl::cpu::Function function{.operation = nccl::cpu::Operation::kBroadcast};
    const std::vector works{SendReceiveWork(layout, send.data())};
    const nccl::cpu::CollectiveWork work(layout, broadcast.data());
    Fiber fiber(index == 1 ? send_receive(middle.block(), works)
                           : collective(middle.block(), function, work));
    for (int turn = 0; turn < 20; ++turn) fiber.advance();
    EXPECT_EQ(middle.to(1).tail(), 1U);
    EXPECT_FALSE(fiber.ended());
    middle.to(1).announce(0, DeviceLink::kNothing);
    fiber.advance();
    EXPECT_TRUE(fiber.ended());
  }
}

// One step for everything, however small the chunks of the work are. NCCL 2.22 does not mark the
// connections whose NICs reach the user's buffers.
TEST(Registered, SendsAndReceivesAreOneStep) {
  constexpr int kIndex = 1;
  const ProtocolUse use{.protocol = Protocol::kSimple};
  for (const auto fifo : {Fifo::kDirect, Fifo::kInOrder}) {
    Middle middle(use, fifo, 0, kIndex);
    std::vector<Bytes> sent{random_bytes(100'000, 1)};
    const std::vector<Bytes> coming{random_bytes(70'000, 2)};
    std::vector<Bytes> received{Bytes(70'000)};
    SendReceiveFields fields;
    fields.send = {sent[0].data(), 100'000, 1, 1, 40, false, true};
    fields.receive = {received[0].data(), 70'000, 2, 1, 40, false, true};
    const auto bytes = fields.bytes();
    const std::vector works{SendReceiveWork(middle.block().layout(), bytes.data())};
    Fiber fiber(send_receive(middle.block(), works));
    std::deque<Neighbour> nics;
    nics.emplace_back(middle.to(1), use, kReceives, sent, 0, addresses(sent));
    nics.emplace_back(middle.from(2), use, kSends, coming, 0, addresses(received));
    ASSERT_TRUE(run_together(fiber, nics));
    EXPECT_EQ(received, coming);
    EXPECT_EQ(middle.communicator().step(0, 1, true, kIndex), 1U);
    EXPECT_EQ(middle.communicator().step(0, 2, false, kIndex), 1U);
    EXPECT_TRUE(untouched(middle.to(1)));
  }
}

}  // namespace
}  // namespace pacecar::registered_test
