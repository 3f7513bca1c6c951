// A peer that breaks the protocol of libfabric NICs breaks only its own queue pair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/ofi_stranger.h"
#include "tests/support/over_ofi.h"
#include "transport/base/prng.h"

namespace pacecar::hostile_test {
namespace {

using test::eventually;
using test::OfiConnection;
using test::OfiEnd;
using test::OfiStranger;
using test::run_until;
using testing::AllOf;
using testing::HasSubstr;
using Kind = OfiMessage::Kind;

class OfiHostileTest : public test::OverOfi {
 protected:
  void SetUp() override {
    test::OverOfi::SetUp();
    if (!IsSkipped()) meet();
  }

  // Makes a new stranger and a new end.
  void meet(Duration silence_limit = Duration::from_s(2)) {
    end_ = nullptr;
    stranger_ = std::make_unique<OfiStranger>(kind());
    end_ = std::make_unique<OfiEnd>(kind(), silence_limit);
    id_ = stranger_->meet(*end_);
  }

  void expect_broken(const std::string& what = "") {
    ASSERT_TRUE(run_until({end_.get()}, [this] {
      stranger_->step();
      return end_->broken(id_) != nullptr;
    }));
    const std::string nic_and_peer =
        "ofi:" + std::string(kind().provider) + ", peer " + end_->nic().peer(id_) + ": ";
    EXPECT_THAT(end_->nic().fault(id_),
                AllOf(HasSubstr(nic_and_peer), HasSubstr(what), HasSubstr(". To cure it, ")));
  }
  // The NIC serves other peers.
  void expect_others_work() {
    OfiEnd other(kind());
    const OfiConnection ends = connect(*end_, other);
    const auto& source = end_->memory(kSize, Access::kLocalRead, 7);
    const auto& sink = other.memory(kSize, Access::kRemoteWrite);
    ASSERT_TRUE(end_->post(ends.a, OfiEnd::write(1, source, sink.target())));
    ASSERT_TRUE(run_until({end_.get(), &other}, [&] { return end_->finished(ends.a) == 1; }));
    EXPECT_EQ(end_->sent(ends.a), 1U);
    EXPECT_EQ(sink.bytes, source.bytes);
  }
  // Runs until the stranger has received a message of this kind.
  const OfiMessage* await(Kind kind) {
    run_until({end_.get()}, [&] {
      stranger_->step();
      return stranger_->received_of(kind) != nullptr || end_->broken(id_) != nullptr;
    });
    return stranger_->received_of(kind);
  }
  uint64_t secret() const { return stranger_->remote().secret; }
  void send(const OfiMessage& message) { stranger_->send(*end_, message); }

  std::unique_ptr<OfiStranger> stranger_;  // outlives the NIC, which writes to it to the end
  std::unique_ptr<OfiEnd> end_;
  QueuePairId id_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Over, OfiHostileTest, test::every_ofi_kind(), test::ofi_kind_name);

TEST_P(OfiHostileTest, UnknownMessageBreaksTheQueuePair) {
  send({.kind = static_cast<Kind>(99)});
  expect_broken("the peer sends an unknown message");
  expect_others_work();
}

TEST_P(OfiHostileTest, PeerThatTakesMoreMessagesThanWereSentBreaksTheProtocol) {
  OfiMessage message{.kind = Kind::kCredit, .taken = 1000, .sequence = 1};
  message.check = message.make_check(secret());
  stranger_->place({end_.get()}, message, 0);
  expect_broken("the peer breaks the protocol");
  expect_others_work();
}

TEST_P(OfiHostileTest, TooLongWriteBreaksTheProtocol) {
  send({.kind = Kind::kNotify, .key = 5, .length = OfiTraits::kMaxWrite + 1});
  expect_broken("the peer breaks the protocol");
  EXPECT_EQ(end_->received(id_), 0U);
  expect_others_work();
}

TEST_P(OfiHostileTest, AThousandAskedKeysAreAnswered) {
  const auto& sink = end_->memory(kSize, Access::kRemoteWrite);
  const auto& locked = end_->memory(kSize, Access::kLocalRead);
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint32_t key = i == 500 ? sink.region.key : i == 501 ? locked.region.key : i;
    ASSERT_TRUE(run_until({end_.get()}, [this] {
      stranger_->step();
      return stranger_->mailbox().has_room();
    }));
    send({.kind = Kind::kAsk, .key = key});
  }
  ASSERT_TRUE(run_until({end_.get()}, [this] {
    stranger_->step();
    return std::ranges::count(stranger_->received, Kind::kRegion, &OfiMessage::kind) == 1000;
  }));
  for (const OfiMessage& message : stranger_->received) {
    if (message.kind == Kind::kRegion) {
      EXPECT_EQ(message.length, message.key == sink.region.key ? kSize : 0) << message.key;
    }
  }
  EXPECT_EQ(end_->broken(id_), nullptr) << end_->nic().fault(id_);
}

TEST_P(OfiHostileTest, PeerThatAsksWithoutTakingAnswersIsDisconnected) {
  for (uint32_t i = 0; i < 1000 && end_->broken(id_) == nullptr; ++i) {
    OfiMessage message{.kind = Kind::kAsk, .key = i, .taken = 0, .sequence = i + 1};
    message.check = message.make_check(secret());
    stranger_->place({end_.get()}, message, i % OfiRings::kMessages);
  }
  expect_broken("the peer asks more than it may at once");
  expect_others_work();
}

// The stranger gives the region back and asks for it again at the same time, while the owner
// revokes it.
TEST_P(OfiHostileTest, RegionThatIsBeingRevokedIsNotLentAgain) {
  meet(Duration::from_s(10));  // the owner waits that long: a busy host delays the stranger
  const auto& sink = end_->memory(kSize, Access::kRemoteWrite);
  const uint32_t key = sink.region.key;
  send({.kind = Kind::kAsk, .key = key});
  ASSERT_NE(await(Kind::kRegion), nullptr);
  OfiMessage revoked{.kind = Kind::kRevoked, .key = key, .sequence = 2};
  OfiMessage again{.kind = Kind::kAsk, .key = key, .sequence = 3};
  revoked.check = revoked.make_check(secret());
  again.check = again.make_check(secret());
  std::atomic<bool> answered = false;
  std::jthread answering([&] {
    eventually([&] {
      stranger_->step();
      return stranger_->received_of(Kind::kRevoke) != nullptr;
    });
    stranger_->place({}, again, 2);  // out of order: taken only after `revoked`
    stranger_->place({}, revoked, 1);
    answered = true;
  });
  end_->nic().deregister_memory(sink.region);
  while (!answered) end_->step();
  answering.join();
  end_->step();
  EXPECT_TRUE(end_->broken(id_) == nullptr || kind().slow) << end_->nic().fault(id_);
}

TEST_P(OfiHostileTest, UnrequestedAnswersChangeNothing) {
  send({.address = 0x1000, .kind = Kind::kRegion, .key = 5, .length = kSize});
  send({.kind = Kind::kRevoked, .key = 5});
  send({.kind = Kind::kRevoke, .key = 5});
  ASSERT_NE(await(Kind::kRevoked), nullptr);
  const auto& source = end_->memory(kSize, Access::kLocalRead);
  ASSERT_TRUE(end_->post(id_, OfiEnd::write(1, source, {.address = 0x1000, .key = 5})));
  ASSERT_NE(await(Kind::kAsk), nullptr);
  send({.address = 0x1000, .kind = Kind::kRegion, .key = 6, .length = kSize});
  send({.address = ~uint64_t{0} - 10, .kind = Kind::kRegion, .key = 5, .length = kSize});
  ASSERT_TRUE(run_until({end_.get()}, [this] { return end_->finished(id_) == 1; }));
  EXPECT_EQ(end_->sent(id_, CompletionStatus::kRemoteAccessError), 1U) << "the region wraps";
  EXPECT_EQ(end_->broken(id_), nullptr) << end_->nic().fault(id_);
}

TEST_P(OfiHostileTest, WriteWithAFalseProviderKeyFails) {
  const auto& source = end_->memory(kSize, Access::kLocalRead);
  ASSERT_TRUE(end_->post(id_, OfiEnd::write(1, source, {.address = 0x1000, .key = 5})));
  ASSERT_NE(await(Kind::kAsk), nullptr);
  send({.address = 0x1000,
        .provider_address = 0x1000,
        .provider_key = 0x4711,
        .kind = Kind::kRegion,
        .key = 5,
        .length = kSize});
  expect_broken();
  EXPECT_EQ(end_->sent(id_), 0U);
  expect_others_work();
}

TEST_P(OfiHostileTest, RandomMessagesHarmNoOtherPeer) {
  Prng prng(20);
  end_->memory(kSize, Access::kRemoteWrite);
  for (int round = 0; round < 10; ++round) {
    uint64_t sequence = 0;
    for (int i = 0; i < 60 && end_->broken(id_) == nullptr; ++i) {
      OfiMessage message{.address = prng.next_u64() >> prng.below(64),
                         .provider_address = prng.next_u64(),
                         .provider_key = prng.next_u64(),
                         .kind = static_cast<Kind>(prng.below(9)),
                         .key = static_cast<uint32_t>(prng.below(5)),
                         .length = prng.next_u64() >> prng.below(64),
                         .taken = static_cast<uint32_t>(prng.below(3)),
                         .sequence = ++sequence};
      message.check = prng.below(20) == 0 ? prng.next_u64() : message.make_check(secret());
      stranger_->place({end_.get()}, message,
                       static_cast<uint32_t>((sequence - 1) % OfiRings::kMessages));
    }
    end_->nic().destroy_queue_pair(id_);
    if (round == 5) expect_others_work();
    meet();
  }
  expect_others_work();
}

}  // namespace
}  // namespace pacecar::hostile_test
