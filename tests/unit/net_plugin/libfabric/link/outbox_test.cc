// The outbox over a connection whose acknowledgements the test controls.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "net_plugin/libfabric/link/connections.h"
#include "tests/support/null_context.h"
#include "transport/message/message_request.h"

namespace pacecar::fabric::outbox_test {
namespace {

class LateConnection final : public SendConnection {
 public:
  struct Sent {
    std::vector<uint8_t> message;
    MessageRequest request;
  };

  explicit LateConnection(std::deque<Sent>& sent) : sent_(sent) {}
  Result<Request*> isend(const void* data, size_t size, int, const Memory*) override {
    const auto* const bytes = static_cast<const uint8_t*>(data);
    Sent& one = sent_.emplace_back();
    one.message.assign(bytes, bytes + size);
    one.request.set(MessageRequest::State::kPending);
    return &one.request;
  }
  Result<TestResult> test(Request*) override { return TestResult{.done = true}; }
  std::string peer() const override { return "receiver:1"; }
  size_t nic() const override { return 0; }
  FlowView flow() const override { return {}; }

 private:
  std::deque<Sent>& sent_;
};

class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest() {
    EXPECT_TRUE(outbox_.open(std::make_unique<LateConnection>(sent_), {.kind = FrameKind::kHello}));
  }

  void add(uint64_t id, Outbox::Coming coming) {
    ASSERT_TRUE(outbox_.has_room(sizeof id));
    outbox_.add({.kind = FrameKind::kMessage, .payload = sizeof id, .length = sizeof id, .id = id});
    ASSERT_TRUE(outbox_.start(coming));
  }
  void acknowledge_all() {
    for (auto& one : sent_) one.request.set(MessageRequest::State::kDone);
    ASSERT_TRUE(outbox_.finish());
  }
  // The frames after kHello, in order of sending.
  std::vector<uint64_t> sent_ids() const {
    std::vector<uint64_t> ids;
    for (const auto& one : sent_) {
      FrameReader reader(one.message);
      while (const auto view = reader.next()) {
        if (view->frame.kind != FrameKind::kHello) ids.push_back(view->frame.id);
      }
    }
    return ids;
  }
  static std::vector<uint64_t> first(uint64_t count) {
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; id < count; ++id) ids.push_back(id);
    return ids;
  }

  std::deque<LateConnection::Sent> sent_;
  Outbox outbox_{std::make_shared<test::NullContext>()};
};

TEST_F(OutboxTest, FramesGatherWhileSeveralMessagesAreOutstanding) {
  for (uint64_t id = 0; id < 100; ++id) add(id, Outbox::Coming::kUnknown);
  EXPECT_TRUE(outbox_.has_unsent_frames());
  EXPECT_LT(sent_.size(), 10U);
  acknowledge_all();
  add(100, Outbox::Coming::kUnknown);
  EXPECT_EQ(sent_ids(), first(101));
  EXPECT_LT(sent_.size(), 10U);
}

// The application waits for an answer to these frames, so they must not wait for an
// acknowledgement.
TEST_F(OutboxTest, GatheredFramesLeaveWhenNothingMoreComes) {
  for (uint64_t id = 0; id < 100; ++id) add(id, Outbox::Coming::kUnknown);
  ASSERT_TRUE(outbox_.start(Outbox::Coming::kNothing));
  EXPECT_FALSE(outbox_.has_unsent_frames());
  EXPECT_EQ(sent_ids(), first(100));
  EXPECT_FALSE(outbox_.idle());
  acknowledge_all();
  EXPECT_TRUE(outbox_.idle());
}

TEST_F(OutboxTest, FramesAddedBeforeMoreShareAMessage) {
  for (uint64_t id = 0; id < 3; ++id) add(id, Outbox::Coming::kMore);
  const size_t before = sent_.size();
  add(3, Outbox::Coming::kUnknown);
  EXPECT_EQ(sent_.size(), before + 1);
  EXPECT_EQ(sent_ids(), first(4));
}

TEST_F(OutboxTest, RepliesThatThePeerDoesNotTakeAreBoundedInBytes) {
  constexpr size_t kMost = (size_t{64} << 20) / kEagerBytes + kMaxMessages;
  const std::vector<uint8_t> bytes(kEagerBytes);
  const auto reply = [&] {
    return outbox_.reply({.kind = FrameKind::kDone, .payload = kEagerBytes}, bytes);
  };
  size_t replies = 0;
  while (replies <= kMost && reply()) ++replies;
  EXPECT_EQ(replies, kMost);
  ASSERT_TRUE(outbox_.start(Outbox::Coming::kNothing));
  acknowledge_all();
  ASSERT_TRUE(outbox_.start(Outbox::Coming::kNothing));
  EXPECT_TRUE(reply()) << "some have left";
}

}  // namespace
}  // namespace pacecar::fabric::outbox_test
