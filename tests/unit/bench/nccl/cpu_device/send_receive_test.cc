// Sends and receives of two to five ranks, all at the same time, of any sizes, over several
// channels.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "tests/support/device_world.h"
#include "tests/support/transfer_neighbours.h"

namespace pacecar::send_receive_test {
namespace {

using nccl::cpu::Library;
using test::Bytes;
using test::DeviceLink;
using test::DeviceWorld;
using test::LaunchArguments;
using test::random_bytes;
using test::SendReceiveFields;

size_t any(size_t least, size_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(least, most + 1));
}

// From one rank to another.
struct Message {
  Bytes sent;
  Bytes received;
  uint8_t channels;
  uint8_t chunk;
  bool ll;

  SendReceiveFields::Direction direction(bool sends, size_t peer) {
    return {.address = sends ? sent.data() : received.data(),
            .bytes = sent.size(),
            .peer = static_cast<int>(peer),
            .channels = channels,
            .chunk = chunk,
            .ll = ll};
  }
};

Message any_message(size_t channels) {
  Message message{};
  const size_t bytes = any(0, 3) == 0 ? any(0, 3) : any(0, 30'000);
  message.sent = random_bytes(bytes, any(0, 1'000'000));
  message.received.resize(bytes);
  message.ll = any(0, 1) != 0;
  // From 40 bytes to a whole step: 512 bytes of LL, else 1024.
  message.chunk = static_cast<uint8_t>(any(26, message.ll ? 56 : 64));
  message.channels = static_cast<uint8_t>(any(any(0, 4) == 0 ? 0 : 1, channels));  // 0: none at all
  return message;
}

RC_GTEST_PROP(SendReceiveProperty, EveryByteArrives, ()) {
  const int version = *rc::gen::element(22203, 22809, 22907);
  const size_t ranks = any(2, 5);
  const size_t channels = size_t{1} << any(0, 2);
  std::mt19937_64 random(any(0, 1'000'000));
  DeviceWorld world(*nccl::cpu::layout_of(version), static_cast<int>(ranks),
                    static_cast<int>(channels), {},
                    [&](int) { return static_cast<DeviceLink::Fifo>(random() % 3); });
  const Library library{*nccl::cpu::layout_of(version),
                        {{.operation = nccl::cpu::Operation::kSendReceive}}};
  std::vector<std::vector<Message>> messages(ranks);  // by sender and receiver
  std::vector<uint8_t> bases;                         // by distance, as NCCL's rounds are
  for (size_t from = 0; from < ranks; ++from) {
    bases.push_back(static_cast<uint8_t>(any(0, channels - 1)));
    for (size_t to = 0; to < ranks; ++to) {
      messages[from].push_back(any_message(channels));
      if (from == to) continue;
      for (size_t channel = 0; channel < channels; ++channel) {
        world.connect(static_cast<int>(channel), static_cast<int>(from), static_cast<int>(to), 1);
      }
    }
  }
  for (int round = 0; round < 2; ++round) {
    std::vector<LaunchArguments> arguments;
    for (size_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::vector<char>> works;
      for (size_t distance = 0; distance < ranks; ++distance) {
        const size_t to = (rank + distance) % ranks;
        const size_t from = (rank + ranks - distance) % ranks;
        const SendReceiveFields fields{.send = messages[rank][to].direction(true, to),
                                       .receive = messages[from][rank].direction(false, from),
                                       .channels = static_cast<uint8_t>(channels),
                                       .base = bases[distance]};
        works.push_back(fields.bytes());
      }
      arguments.emplace_back(world.rank(rank).address(), (uint64_t{1} << channels) - 1)
          .add_layer(LaunchArguments::Kind::kSendReceive, 0, works);
    }
    RC_ASSERT(DeviceWorld::run(library, arguments, random()));
    for (std::vector<Message>& from : messages) {
      for (Message& message : from) {
        if (message.channels > 0) RC_ASSERT(message.received == message.sent);
        if (message.channels == 0) RC_ASSERT(message.received == Bytes(message.sent.size()));
        message.received.assign(message.received.size(), 0);
      }
    }
  }
}

// Two ranks, each with one message for the other.
class Pair {
 public:
  Pair()
      : world_(*nccl::cpu::layout_of(22907), 2, 2, {},
               [](int) { return DeviceLink::Fifo::kInOrder; }) {
    for (const int channel : {0, 1}) {
      world_.connect(channel, 0, 1, 1);
      world_.connect(channel, 1, 0, 1);
    }
  }

  DeviceWorld& world() { return world_; }
  bool run(std::vector<LaunchArguments>& arguments) {
    const Library library{*nccl::cpu::layout_of(22907),
                          {{.operation = nccl::cpu::Operation::kSendReceive}}};
    return DeviceWorld::run(library, arguments, 1);
  }

 private:
  DeviceWorld world_;
};

// Each rank receives first: its send is in a batch that belongs to the same run.
TEST(SendReceive, OfABatchThatExtendsAnotherAreDoneAtTheSameTime) {
  Pair pair;
  std::array<Bytes, 2> sent{random_bytes(20'000, 1), random_bytes(20'000, 2)};
  std::array<Bytes, 2> received{Bytes(20'000), Bytes(20'000)};
  std::vector<LaunchArguments> arguments;
  for (size_t rank = 0; rank < 2; ++rank) {
    const int peer = 1 - static_cast<int>(rank);
    SendReceiveFields first{.channels = 2};
    SendReceiveFields second{.channels = 2};
    first.send.peer = second.receive.peer = peer;
    first.receive = {received[rank].data(), 20'000, peer, 2, 56, false};
    second.send = {sent[rank].data(), 20'000, peer, 2, 56, false};
    auto& own = arguments.emplace_back(pair.world().rank(rank).address(), 0b11);
    own.add_layer(LaunchArguments::Kind::kSendReceive, 0, {first.bytes()});
    own.add_layer(LaunchArguments::Kind::kSendReceive, 0, {second.bytes()}, true);
  }
  ASSERT_TRUE(pair.run(arguments));
  EXPECT_EQ(received[0], sent[1]);
  EXPECT_EQ(received[1], sent[0]);
  for (const int channel : {0, 1}) EXPECT_EQ(pair.world().rank(0).work_counter(channel), 2U);
}

TEST(SendReceive, OfNothingStillMakesAStep) {
  for (const bool ll : {false, true}) {
    Pair pair;
    std::vector<LaunchArguments> arguments;
    for (size_t rank = 0; rank < 2; ++rank) {
      SendReceiveFields fields;
      fields.send = fields.receive = {nullptr, 0, 1 - static_cast<int>(rank), 1, 56, ll};
      arguments.emplace_back(pair.world().rank(rank).address(), 1)
          .add_layer(LaunchArguments::Kind::kSendReceive, 0, {fields.bytes()});
    }
    ASSERT_TRUE(pair.run(arguments));
    for (const bool sends : {false, true}) {
      EXPECT_EQ(pair.world().rank(0).step(0, 1, sends, 1), 1U);
      EXPECT_EQ(pair.world().rank(1).step(0, 0, sends, 1), 1U);
    }
  }
}

TEST(SendReceive, UseTheProtocolAndTheChunksOfTheWork) {
  for (const bool ll : {false, true}) {
    Pair pair;
    const Bytes sent = random_bytes(1000, 1);
    Bytes received(1000);
    std::vector<LaunchArguments> arguments;
    for (size_t rank = 0; rank < 2; ++rank) {
      SendReceiveFields fields;
      fields.send.peer = fields.receive.peer = 1 - static_cast<int>(rank);
      (rank == 0 ? fields.send : fields.receive) = {
          rank == 0 ? sent.data() : received.data(), 1000, 1 - static_cast<int>(rank), 1, 40, ll};
      arguments.emplace_back(pair.world().rank(rank).address(), 1)
          .add_layer(LaunchArguments::Kind::kSendReceive, 0, {fields.bytes()});
    }
    ASSERT_TRUE(pair.run(arguments));
    EXPECT_EQ(received, sent);
    // Seven chunks of 128 bytes and one of the remaining 104; lines of LL are twice as long.
    DeviceLink& link = pair.world().link(0, 0, 1, 1);
    for (uint64_t step = 0; step < 8; ++step) {
      EXPECT_EQ(link.announced(step), (step < 7 ? 128 : 104) * (ll ? 2 : 1));
    }
    EXPECT_EQ(link.head(), 8U);
    EXPECT_EQ(link.tail(), ll ? 0U : 8U);
  }
}

// With one buffer for both, a rank that sends to itself keeps its data.
TEST(SendReceive, ToItselfInPlaceChangesNothing) {
  Pair pair;
  const Bytes original = random_bytes(10'000, 1);
  Bytes own = original;
  SendReceiveFields fields;
  fields.send = {own.data(), own.size(), 1, 1, 40, false};
  fields.receive = fields.send;
  std::vector<LaunchArguments> arguments;
  arguments.emplace_back(pair.world().rank(1).address(), 1)
      .add_layer(LaunchArguments::Kind::kSendReceive, 0, {fields.bytes()});
  EXPECT_TRUE(pair.run(arguments));
  EXPECT_EQ(own, original);
}

}  // namespace
}  // namespace pacecar::send_receive_test
