// NCCL's three protocols against ends that are written from their description: the counters,
// where bytes and flags lie, and which end waits for which.
#include "bench/nccl/cpu_device/collectives/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <vector>

#include "tests/support/transfer_neighbours.h"

namespace pacecar::transfers_test {
namespace {

using nccl::cpu::Arithmetic;
using nccl::cpu::Fiber;
using nccl::cpu::Protocol;
using nccl::cpu::Reduction;
using nccl::cpu::Type;
using test::Bytes;
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

const std::array kUses{
    ProtocolUse{.protocol = Protocol::kLl},
    ProtocolUse{.protocol = Protocol::kLl, .bytes = {.ll = 8192}},
    ProtocolUse{.protocol = Protocol::kLl128},
    ProtocolUse{.protocol = Protocol::kSimple},
    ProtocolUse{.protocol = Protocol::kSimple, .slices = 2, .slice_steps = 2},
    ProtocolUse{.protocol = Protocol::kSimple, .slices = 4, .slice_steps = 1},
};

// Around the borders of lines, units and slices, and the greatest transfer: more sizes
// than there are buffers.
std::vector<size_t> transfer_sizes(const ProtocolUse& use) {
  const size_t most = most_bytes(use);
  std::vector<size_t> sizes;
  for (const size_t size :
       {0,   1,   7,   8,   9,   15,  16,   17,   63,   64,   65,   119,  120,
        121, 255, 256, 257, 512, 513, 1023, 1024, 1919, 1920, 1921, 2048, 2049}) {
    if (size <= most) sizes.push_back(size);
  }
  sizes.insert(sizes.end(), {most, most - 1, 0, most});
  return sizes;
}

constexpr std::array<int, 1> kFirst{1};
constexpr std::array<int, 1> kSecond{2};
constexpr std::array<int, 3> kAll{1, 2, 3};
constexpr std::array kFifos{Fifo::kNone, Fifo::kInOrder, Fifo::kByOffset};

const Arithmetic kBytes(Reduction::kSum, Type::kUint8, 0, false);

// --- one direction ---

void check_sending(const ProtocolUse& use, Fifo fifo) {
  SCOPED_TRACE(name(use, fifo));
  Middle middle(use, fifo);
  const auto sent = random_transfers(transfer_sizes(use), 1);
  std::vector<Transfer> transfers;
  for (const Bytes& one : sent) {
    transfers.push_back({.sends = true, .input = one.data(), .elements = one.size()});
  }
  Fiber fiber(run_all(middle.block(), use, kBytes, {.send_to = kFirst}, transfers));
  std::deque<Neighbour> receiver;
  receiver.emplace_back(middle.to(1), use, kReceives, sent);
  ASSERT_TRUE(run_together(fiber, receiver));
  const uint64_t step = receiver[0].peer().step();
  EXPECT_EQ(middle.communicator().step(0, 1, true), step);
  const bool counts = use.protocol == Protocol::kSimple ||
                      (use.protocol == Protocol::kLl128 && fifo != Fifo::kNone);
  EXPECT_EQ(middle.to(1).tail(), counts ? step : 0);
}

void check_receiving(const ProtocolUse& use, Fifo fifo, bool slow) {
  SCOPED_TRACE(name(use, fifo));
  Middle middle(use, fifo);
  const auto sent = random_transfers(transfer_sizes(use), 1);
  std::vector<Bytes> received;
  std::vector<Transfer> transfers;
  for (const Bytes& one : sent) {
    received.emplace_back(one.size() + 1, 'x');
    transfers.push_back(
        {.receives = true, .output = received.back().data(), .elements = one.size()});
  }
  Fiber fiber(run_all(middle.block(), use, kBytes, {.receive_from = kFirst}, transfers));
  std::deque<Neighbour> sender;
  sender.emplace_back(middle.from(1), use, kSends, sent);
  if (slow) sender[0].peer().set_slow();
  ASSERT_TRUE(run_together(fiber, sender));
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(received[i].back(), 'x') << i;
    received[i].pop_back();
    EXPECT_EQ(received[i], sent[i]) << i;
  }
  EXPECT_EQ(middle.from(1).head(), sender[0].peer().step());
  EXPECT_EQ(middle.communicator().step(0, 1, false), sender[0].peer().step());
}

TEST(Transfers, SendAndReceiveAsTheReferencesDo) {
  for (const ProtocolUse& use : kUses) {
    for (const Fifo fifo : kFifos) {
      // A step's place by its offset has room for one step.
      if (fifo == Fifo::kByOffset && use.slice_steps > 1) continue;
      check_sending(use, fifo);
      check_receiving(use, fifo, false);
      check_receiving(use, fifo, true);
    }
  }
}

// --- in the middle ---

// Receives from some, reduces with the own input, sends to some and keeps the result.
void check_reducing(ProtocolUse use, Type type, std::span<const int> from,
                    std::span<const int> to) {
  const Arithmetic arithmetic(Reduction::kSum, type, 0, false);
  use.element_bytes = arithmetic.element_bytes();
  SCOPED_TRACE(name(use, Fifo::kInOrder));
  Middle middle(use, Fifo::kInOrder);
  const size_t most = most_bytes(use);
  std::vector<size_t> sizes;
  for (size_t i = 0; i <= 10; ++i) {
    sizes.push_back(most * i / 10 / use.element_bytes * use.element_bytes);
  }
  const auto inputs = random_transfers(sizes, 1);
  auto expected = inputs;
  std::deque<Neighbour> neighbours;
  for (const int peer : from) {
    const auto sent = random_transfers(sizes, 100 * static_cast<uint64_t>(peer));
    for (size_t i = 0; i < sizes.size(); ++i) {
      arithmetic.reduce(expected[i].data(), sent[i].data(), sizes[i] / use.element_bytes);
    }
    neighbours.emplace_back(middle.from(peer), use, kSends, sent);
  }
  for (const int peer : to) neighbours.emplace_back(middle.to(peer), use, kReceives, expected);
  std::vector<Bytes> outputs;
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < sizes.size(); ++i) {
    outputs.emplace_back(sizes[i]);
    transfers.push_back({.receives = true,
                         .sends = !to.empty(),
                         .input = inputs[i].data(),
                         .output = outputs[i].data(),
                         .elements = sizes[i] / use.element_bytes});
  }
  Fiber fiber(run_all(middle.block(), use, arithmetic, {from, to}, transfers));
  ASSERT_TRUE(run_together(fiber, neighbours));
  EXPECT_EQ(outputs, expected);
}

TEST(Transfers, ReduceBetweenReferences) {
  for (const ProtocolUse& use : kUses) {
    for (const Type type : {Type::kUint8, Type::kInt32, Type::kUint64}) {
      check_reducing(use, type, kFirst, kSecond);
      check_reducing(use, type, kAll, kFirst);
      check_reducing(use, type, kAll, {});
      check_reducing(use, type, kFirst, kAll);
    }
  }
}

// Received data goes on unchanged, without an input, and need not be kept.
TEST(Transfers, PassOnWhatTheyReceive) {
  for (const ProtocolUse& use : kUses) {
    for (const bool keeps : {false, true}) {
      SCOPED_TRACE(name(use, Fifo::kNone));
      Middle middle(use);
      const auto sent = random_transfers({1000, 0, 3, 512, 1, 100, 7, 8, 9, 10}, 1);
      std::vector<Bytes> kept;
      std::vector<Transfer> transfers;
      for (const Bytes& one : sent) {
        kept.emplace_back(one.size());
        transfers.push_back({.receives = true,
                             .sends = true,
                             .output = keeps ? kept.back().data() : nullptr,
                             .elements = one.size()});
      }
      Fiber fiber(run_all(middle.block(), use, kBytes, {kFirst, kAll}, transfers));
      std::deque<Neighbour> neighbours;
      neighbours.emplace_back(middle.from(1), use, kSends, sent);
      for (const int peer : kAll) neighbours.emplace_back(middle.to(peer), use, kReceives, sent);
      ASSERT_TRUE(run_together(fiber, neighbours));
      if (keeps) {
        EXPECT_EQ(kept, sent);
      }
    }
  }
}

// The own input is prepared once, and the whole result finished once.
TEST(Transfers, PrepareTheOwnInputAndFinishTheResult) {
  for (const ProtocolUse& use : kUses) {
    SCOPED_TRACE(name(use, Fifo::kNone));
    for (const bool own : {true, false}) {
      Middle middle(use);
      const Arithmetic arithmetic(Reduction::kPreMultipliedSum, Type::kUint8, 3, false);
      const Bytes input(100, 5);
      Bytes output(100);
      const Transfer transfer{.receives = true,
                              .sends = true,
                              .input = input.data(),
                              .input_is_own = own,
                              .output = output.data(),
                              .elements = 100};
      Fiber fiber(run_all(middle.block(), use, arithmetic, {kFirst, kFirst}, {transfer}));
      const Bytes expected(100, own ? 5 * 3 + 1 : 5 + 1);
      std::deque<Neighbour> neighbours;
      neighbours.emplace_back(middle.from(1), use, kSends, std::vector<Bytes>{Bytes(100, 1)});
      neighbours.emplace_back(middle.to(1), use, kReceives, std::vector<Bytes>{expected});
      ASSERT_TRUE(run_together(fiber, neighbours));
      EXPECT_EQ(output, expected);
      EXPECT_EQ(input, Bytes(100, 5));
    }
    for (const bool completes : {true, false}) {
      Middle middle(use);
      const Arithmetic arithmetic(Reduction::kSumPostDivided, Type::kUint8, 3, false);
      const Bytes input(100, 50);
      Bytes output(100);
      const Transfer transfer{.receives = true,
                              .sends = true,
                              .input = input.data(),
                              .output = output.data(),
                              .elements = 100,
                              .completes = completes};
      Fiber fiber(run_all(middle.block(), use, arithmetic, {kFirst, kFirst}, {transfer}));
      const Bytes expected(100, completes ? 20 : 60);
      std::deque<Neighbour> neighbours;
      neighbours.emplace_back(middle.from(1), use, kSends, std::vector<Bytes>{Bytes(100, 10)});
      neighbours.emplace_back(middle.to(1), use, kReceives, std::vector<Bytes>{expected});
      ASSERT_TRUE(run_together(fiber, neighbours));
      EXPECT_EQ(output, expected);
    }
  }
}

}  // namespace
}  // namespace pacecar::transfers_test
