// The conditions that transfers wait for, their counters across groups and protocols, and how they
// end when NCCL aborts.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <deque>
#include <random>
#include <vector>

#include "tests/support/transfer_neighbours.h"

namespace pacecar::transfer_steps_test {
namespace {

using nccl::cpu::Aborted;
using nccl::cpu::Arithmetic;
using nccl::cpu::Block;
using nccl::cpu::Fiber;
using nccl::cpu::Protocol;
using nccl::cpu::Reduction;
using nccl::cpu::Type;
using test::Bytes;
using test::DeviceCommunicator;
using test::DeviceLink;
using test::Middle;
using test::most_bytes;
using test::name;
using test::Neighbour;
using test::ProtocolUse;
using test::random_transfers;
using test::run_all;
using test::run_together;
using enum test::Neighbour::Role;
using Transfer = nccl::cpu::Transfers::Transfer;
using Fifo = DeviceLink::Fifo;

constexpr ProtocolUse kLl{.protocol = Protocol::kLl};
constexpr ProtocolUse kLl128{.protocol = Protocol::kLl128};
constexpr ProtocolUse kSimple{.protocol = Protocol::kSimple};
constexpr ProtocolUse kTwoByTwo{.protocol = Protocol::kSimple, .slices = 2, .slice_steps = 2};
constexpr std::array kUses{kLl, kLl128, kSimple, kTwoByTwo};
constexpr std::array<int, 1> kFirst{1};
constexpr std::array<int, 3> kFirstThenNobody{1, -1, 3};

const Arithmetic kBytes(Reduction::kSum, Type::kUint8, 0, false);

std::vector<Transfer> sends_of(const std::vector<Bytes>& all) {
  std::vector<Transfer> transfers;
  for (const Bytes& one : all) {
    transfers.push_back({.sends = true, .input = one.data(), .elements = one.size()});
  }
  return transfers;
}
std::vector<Transfer> receives_into(std::vector<Bytes>& all) {
  std::vector<Transfer> transfers;
  for (Bytes& one : all) {
    transfers.push_back({.receives = true, .output = one.data(), .elements = one.size()});
  }
  return transfers;
}

void advance_often(Fiber& fiber) {
  for (int i = 0; i < 20 && !fiber.ended(); ++i) fiber.advance();
}

// --- waiting ---

// The first step from `from` that the sender has not begun, and so not announced.
uint64_t announced(DeviceLink& link, uint64_t from, uint64_t slice_steps) {
  uint64_t step = from;
  while (step < from + 8 && link.announced(step) != DeviceLink::kNothing) step += slice_steps;
  return step;
}

TEST(TransferSteps, SendersFillEightBuffersAndWaitForRoom) {
  for (const ProtocolUse& use : kUses) {
    SCOPED_TRACE(name(use, Fifo::kInOrder));
    Middle middle(use, Fifo::kInOrder);
    DeviceLink& link = middle.to(1);
    const std::vector<Bytes> sent = random_transfers(std::vector<size_t>(20, most_bytes(use)), 1);
    Fiber fiber(run_all(middle.block(), use, kBytes, {.send_to = kFirst}, sends_of(sent)));
    advance_often(fiber);
    ASSERT_FALSE(fiber.ended());
    EXPECT_EQ(announced(link, 0, use.slice_steps), 8U);
    EXPECT_EQ(link.tail(), use.protocol == Protocol::kLl ? 0U : 8U);
    const Bytes first(link.buffer(use.protocol, 0), link.buffer(use.protocol, 0) + 512);
    // Only free buffers are filled again, a whole slice at a time.
    for (uint64_t step = 0; step < 8; ++step) link.announce(step, DeviceLink::kNothing);
    for (uint64_t head = 1; head <= 4; ++head) {
      if (head < use.slice_steps) {
        const char* const buffer = link.buffer(use.protocol, 0);
        EXPECT_EQ(Bytes(buffer, buffer + 512), first);
      }
      link.set_head(head);
      advance_often(fiber);
      const uint64_t whole = head / use.slice_steps * use.slice_steps;
      EXPECT_EQ(announced(link, 0, use.slice_steps), whole);
      EXPECT_EQ(link.tail(), use.protocol == Protocol::kLl ? 0U : 8 + whole);
    }
  }
}

TEST(TransferSteps, ReceiversOfSimpleWaitForTheCount) {
  for (const ProtocolUse& use : {kSimple, kTwoByTwo}) {
    Middle middle(use);
    std::vector<Bytes> received(1, Bytes(most_bytes(use)));
    Fiber fiber(
        run_all(middle.block(), use, kBytes, {.receive_from = kFirst}, receives_into(received)));
    for (uint64_t tail = 0; tail < uint64_t{use.slices} * use.slice_steps; ++tail) {
      middle.from(1).set_tail(tail);
      advance_often(fiber);
      EXPECT_FALSE(fiber.ended()) << tail;
      EXPECT_EQ(middle.from(1).head(), tail / use.slice_steps * use.slice_steps);
    }
    middle.from(1).set_tail(uint64_t{use.slices} * use.slice_steps);
    advance_often(fiber);
    EXPECT_TRUE(fiber.ended());
  }
}

// Flags of the step eight steps ago are still there.
TEST(TransferSteps, ReceiversIgnoreOldFlags) {
  for (const ProtocolUse& use : {kLl, kLl128}) {
    for (const Fifo fifo : {Fifo::kNone, Fifo::kInOrder}) {
      SCOPED_TRACE(name(use, fifo));
      Middle middle(use, fifo);
      const auto sent = random_transfers(std::vector<size_t>(16, 300), 1);
      std::vector<Bytes> received(16, Bytes(300));
      Fiber fiber(
          run_all(middle.block(), use, kBytes, {.receive_from = kFirst}, receives_into(received)));
      Neighbour first(middle.from(1), use, kSends, {sent.begin(), sent.begin() + 8});
      EXPECT_TRUE(first.advance());
      advance_often(fiber);
      EXPECT_EQ(middle.from(1).head(), 8U);
      if (fifo != Fifo::kNone) {
        middle.from(1).set_tail(9);  // the count alone is not enough
        advance_often(fiber);
        middle.from(1).set_tail(8);
      }
      EXPECT_EQ(middle.from(1).head(), 8U);
      Neighbour second(middle.from(1), use, kSends, {sent.begin() + 8, sent.end()}, 8);
      EXPECT_TRUE(second.advance());
      advance_often(fiber);
      EXPECT_TRUE(fiber.ended());
      EXPECT_EQ(received, sent);
    }
  }
}

// A processor's copy does not arrive line by line.
TEST(TransferSteps, ReceiversOfLl128OverTheNetworkWaitForTheCountToo) {
  Middle middle(kLl128, Fifo::kInOrder);
  const auto sent = random_transfers({1000}, 1);
  std::vector<Bytes> received(1, Bytes(1000));
  Fiber fiber(
      run_all(middle.block(), kLl128, kBytes, {.receive_from = kFirst}, receives_into(received)));
  Neighbour sender(middle.from(1), kLl128, kSends, sent);
  EXPECT_TRUE(sender.advance());
  middle.from(1).set_tail(0);
  advance_often(fiber);
  EXPECT_FALSE(fiber.ended());
  middle.from(1).set_tail(1);
  advance_often(fiber);
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(received, sent);
}

TEST(TransferSteps, OnlyTheRanksBeforeTheFirstNobodyTakePart) {
  Middle middle(kSimple);
  const auto sent = random_transfers({100}, 1);
  Fiber fiber(
      run_all(middle.block(), kSimple, kBytes, {.send_to = kFirstThenNobody}, sends_of(sent)));
  advance_often(fiber);
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(middle.to(1).tail(), 1U);
  EXPECT_EQ(middle.to(3).tail(), 0U);
}

// --- groups ---

TEST(TransferSteps, AGroupOfSimpleBeginsAtAWholeChunk) {
  constexpr uint64_t kSteps = 5;
  Middle middle(kTwoByTwo, Fifo::kInOrder, kSteps);
  const auto sent = random_transfers({3000}, 1);
  std::vector<Bytes> received(1, Bytes(3000));
  {
    Fiber empty(run_all(middle.block(), kTwoByTwo, kBytes, {kFirst, kFirst}, {}));
    empty.advance();
  }
  EXPECT_EQ(middle.from(1).head(), 8U);  // so that the sender has room for the skipped steps
  EXPECT_EQ(middle.communicator().step(0, 1, true), 8U);
  EXPECT_EQ(middle.communicator().step(0, 1, false), 8U);
  middle.to(1).set_head(8);
  std::deque<Neighbour> neighbours;
  neighbours.emplace_back(middle.to(1), kTwoByTwo, kReceives, sent, 8);
  neighbours.emplace_back(middle.from(1), kTwoByTwo, kSends, sent, 8);
  Fiber sender(run_all(middle.block(), kTwoByTwo, kBytes, {.send_to = kFirst}, sends_of(sent)));
  Fiber receiver(run_all(middle.block(), kTwoByTwo, kBytes, {.receive_from = kFirst},
                         receives_into(received)));
  advance_often(sender);
  EXPECT_TRUE(run_together(receiver, neighbours));
  EXPECT_TRUE(sender.ended());
  EXPECT_EQ(received, sent);
  EXPECT_EQ(middle.communicator().step(0, 1, true), 12U);
  EXPECT_EQ(middle.communicator().step(0, 1, false), 12U);
}

TEST(TransferSteps, AreCountedOnFromGroupToGroupInAllProtocols) {
  Middle middle(kSimple, Fifo::kInOrder);
  uint64_t step = 0;
  uint64_t seed = 0;
  for (const ProtocolUse& use :
       {kLl, kTwoByTwo, kLl128, kTwoByTwo, kSimple, kLl, kLl128, kLl128, kTwoByTwo}) {
    const uint64_t chunk = uint64_t{use.slices} * use.slice_steps;
    step = (step + chunk - 1) / chunk * chunk;
    const auto sent = random_transfers({400, 0, 77, 512, 1}, ++seed);
    std::vector<Bytes> received;
    std::vector<Transfer> transfers;
    for (const Bytes& one : sent) {
      received.emplace_back(one.size());
      transfers.push_back({.receives = true,
                           .sends = true,
                           .output = received.back().data(),
                           .elements = one.size()});
    }
    middle.to(1).set_head(step);
    middle.from(1).set_tail(step);
    Fiber fiber(run_all(middle.block(), use, kBytes, {kFirst, kFirst}, transfers));
    std::deque<Neighbour> neighbours;
    neighbours.emplace_back(middle.from(1), use, kSends, sent, step);
    neighbours.emplace_back(middle.to(1), use, kReceives, sent, step);
    ASSERT_TRUE(run_together(fiber, neighbours));
    EXPECT_EQ(received, sent);
    step += 5 * chunk;
    EXPECT_EQ(middle.communicator().step(0, 1, true), step);
    EXPECT_EQ(middle.communicator().step(0, 1, false), step);
  }
}

// Flags of LL have 32 bits. Before they repeat, each is written everywhere.
TEST(TransferSteps, FlagsOfLlAreWrittenEverywhereBeforeTheyRepeat) {
  for (const uint64_t repeats : {uint64_t{1} << 31, uint64_t{1} << 32}) {
    for (const Fifo fifo : {Fifo::kNone, Fifo::kInOrder}) {
      const uint64_t begin = repeats - 20;
      Middle middle(kLl, fifo, begin);
      const auto sent = random_transfers(std::vector<size_t>(20, 100), 1);
      Fiber fiber(run_all(middle.block(), kLl, kBytes, {.send_to = kFirst}, sends_of(sent)));
      std::deque<Neighbour> receiver;
      receiver.emplace_back(middle.to(1), kLl, kReceives, sent, begin);
      ASSERT_TRUE(run_together(fiber, receiver));
      for (uint64_t step = repeats - 8; step < repeats; ++step) {
        const char* const buffer = middle.to(1).buffer(Protocol::kLl, step);
        for (size_t word = 0; word < kLl.bytes.ll / 8; ++word) {
          ASSERT_EQ(test::get<uint32_t>(buffer, 8 * word + 4), static_cast<uint32_t>(step + 1));
        }
      }
    }
  }
}

TEST(TransferSteps, FlagsOfLlBeginAgain) {
  constexpr uint64_t kBegin = (uint64_t{1} << 32) - 20;
  Middle middle(kLl, Fifo::kInOrder, kBegin);
  const auto sent = random_transfers(std::vector<size_t>(40, 100), 1);
  std::vector<Bytes> received(40, Bytes(100));
  Fiber fiber(
      run_all(middle.block(), kLl, kBytes, {.receive_from = kFirst}, receives_into(received)));
  std::deque<Neighbour> sender;
  sender.emplace_back(middle.from(1), kLl, kSends, sent, kBegin);
  sender[0].peer().set_slow();
  ASSERT_TRUE(run_together(fiber, sender));
  EXPECT_EQ(received, sent);
}

// --- the end ---

TEST(TransferSteps, EndWhenNcclAbortsWhereverTheyWait) {
  for (const ProtocolUse& use : kUses) {
    for (const Fifo fifo : {Fifo::kNone, Fifo::kInOrder}) {
      for (const bool sends : {false, true}) {
        SCOPED_TRACE(name(use, fifo));
        Middle middle(use, fifo);
        auto data = random_transfers(std::vector<size_t>(9, 300), 1);
        Fiber fiber(sends
                        ? run_all(middle.block(), use, kBytes, {.send_to = kFirst}, sends_of(data))
                        : run_all(middle.block(), use, kBytes, {.receive_from = kFirst},
                                  receives_into(data)));
        advance_often(fiber);
        ASSERT_FALSE(fiber.ended());
        middle.communicator().abort();
        EXPECT_THROW(fiber.advance(), Aborted);
        EXPECT_TRUE(fiber.ended());
        EXPECT_EQ(middle.communicator().step(0, 1, sends), sends ? 8U : 0U);
      }
    }
  }
}

TEST(TransferSteps, EndWhenNcclAbortsAmongTheFlagsOfATransfer) {
  for (const ProtocolUse& use : {kLl, kLl128}) {
    Middle middle(use);
    std::vector<Bytes> received(1, Bytes(500));
    Fiber fiber(
        run_all(middle.block(), use, kBytes, {.receive_from = kFirst}, receives_into(received)));
    Neighbour sender(middle.from(1), use, kSends, random_transfers({500}, 1));
    sender.peer().set_slow();
    for (int i = 0; i < 3; ++i) {
      sender.advance();
      fiber.advance();
    }
    middle.communicator().abort();
    EXPECT_THROW(fiber.advance(), Aborted);
    EXPECT_EQ(middle.from(1).head(), 0U);
  }
}

// --- both ends ---

// Two ranks on one thread, whose transfers take turns at random.
RC_GTEST_PROP(TransferStepsProperty, BothEndsAgree, ()) {
  const auto& layout = *nccl::cpu::layout_of(22809);
  const Type type = *rc::gen::element(Type::kUint8, Type::kFloat16, Type::kInt32, Type::kFloat64);
  ProtocolUse use = *rc::gen::elementOf(std::vector<ProtocolUse>(kUses.begin(), kUses.end()));
  use.element_bytes = nccl::cpu::size_of(type);
  const Arithmetic arithmetic(Reduction::kSum, type, 0, false);
  const bool network = *rc::gen::arbitrary<bool>();
  DeviceCommunicator one(layout, 0, 2, 1, use.bytes);
  DeviceCommunicator other(layout, 1, 2, 1, use.bytes);
  DeviceLink link(use.bytes, use.bytes.simple, network ? Fifo::kInOrder : Fifo::kNone);
  test::join(link, one, other, 0, 0, *rc::gen::inRange<uint64_t>(0, 20));
  const Block sender(layout, one.address(), 0);
  const Block receiver(layout, other.address(), 0);
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  for (int group = *rc::gen::inRange(1, 4); group > 0; --group) {
    std::vector<size_t> sizes(*rc::gen::inRange<size_t>(0, 30));
    for (size_t& size : sizes) {
      size = random() % (most_bytes(use) / use.element_bytes + 1) * use.element_bytes;
    }
    auto sent = random_transfers(sizes, random());
    std::vector<Bytes> received;
    for (const size_t size : sizes) received.emplace_back(size);
    const std::array<int, 1> to{1};
    const std::array<int, 1> from{0};
    auto sending = sends_of(sent);
    auto receiving = receives_into(received);
    for (Transfer& transfer : sending) transfer.elements /= use.element_bytes;
    for (Transfer& transfer : receiving) transfer.elements /= use.element_bytes;
    Fiber first(run_all(sender, use, arithmetic, {.send_to = to}, sending));
    Fiber second(run_all(receiver, use, arithmetic, {.receive_from = from}, receiving));
    for (int turn = 0; turn < 10'000 && !(first.ended() && second.ended()); ++turn) {
      Fiber& next = random() % 2 == 0 ? first : second;
      if (!next.ended()) next.advance();
    }
    RC_ASSERT(first.ended());
    RC_ASSERT(second.ended());
    RC_ASSERT(received == sent);
    RC_ASSERT(one.step(0, 1, true) == other.step(0, 0, false));
  }
}

}  // namespace
}  // namespace pacecar::transfer_steps_test
