// Messenger: signals of the NIC reach the flow's controller.
#include <gtest/gtest.h>

#include <optional>

#include "tests/support/passing_nic.h"
#include "tests/support/soft_nic_pair.h"
#include "transport/message/messenger.h"

namespace pacecar::test::signal_test {
namespace {

// A NIC whose next signal can be chosen.
class SignallingNic final : public PassingNic {
 public:
  explicit SignallingNic(Nic& inner) : PassingNic(inner, inner.caps()) {}

  size_t poll_signals(std::span<FlowSignal> signals) override {
    if (!next) return 0;
    signals[0] = *next;
    next.reset();
    return 1;
  }

  std::optional<FlowSignal> next;
};

class MessengerSignalTest : public testing::Test {
 protected:
  using Made = Result<std::unique_ptr<Messenger>>;

  static Made make(Nic& nic, uint8_t host, Instant now) {
    return Messenger::create(nic,
                             {.identity = {host},
                              .congestion_control = "pace",
                              .line_rate = Rate::from_gbps(100),
                              .max_connections = 4},
                             now);
  }

  MessengerSignalTest()
      : sender_(make(nic_, 1, pair_.now).value()),
        receiver_(make(pair_.nic(1), 2, pair_.now).value()) {
    const auto offered = sender_->open_send({2}, pair_.now).value();
    const auto answered = receiver_->open_receive(offered.offer, pair_.now).value();
    connection_ = offered.connection;
    EXPECT_TRUE(sender_->finish_send(connection_, answered.answer, pair_.now));
  }
  // The core limit of the flow after this signal.
  Rate core_after(const FlowSignal& signal) {
    nic_.next = signal;
    sender_->poll(pair_.now);
    return sender_->explain(connection_).core;
  }

  SoftNicPair pair_;
  SignallingNic nic_{pair_.nic(0)};
  std::unique_ptr<Messenger> sender_;
  std::unique_ptr<Messenger> receiver_;
  ConnectionId connection_ = 0;
};

// The next path may carry more.
TEST_F(MessengerSignalTest, TrimmedPacketsLeaveTheCoreLimitWhileTheNicReroutes) {
  const FlowSignal signal{.trimmed = 1 << 20, .sent = 2 << 20, .rerouting = true};
  const Rate before = sender_->explain(connection_).core;
  EXPECT_EQ(core_after(signal), before);
}

TEST_F(MessengerSignalTest, TrimmedPacketsLowerTheCoreLimitOnAKeptPath) {
  const Rate before = sender_->explain(connection_).core;
  EXPECT_LT(core_after({.trimmed = 1 << 20, .sent = 2 << 20}), before);
}

}  // namespace
}  // namespace pacecar::test::signal_test
