// A second test of a finished request, at the C++ interface.
#include "transport/api/connections.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/passing_nic.h"
#include "tests/support/scripted_packet_io.h"
#include "transport/engine/clock.h"
#include "transport/engine/soft_port.h"

namespace pacecar::connections_test {
namespace {

// Counts the turns that the test's own thread takes.
class OwnTurns final : public test::PassingPort {
 public:
  OwnTurns(std::unique_ptr<NicPort> inner, const NicCaps& caps, int& turns)
      : PassingPort(std::move(inner), caps), turns_(turns) {}

  size_t transmit(Instant now) override {
    if (std::this_thread::get_id() == own_) ++turns_;
    return PassingPort::transmit(now);
  }

 private:
  int& turns_;
  const std::thread::id own_ = std::this_thread::get_id();
};

class SendConnectionTest : public testing::Test {
 protected:
  // The flow is broken, so every send fails when it is taken from the queue.
  SendConnectionTest() {
    auto port = make_soft_port(Params(), std::make_unique<ScriptedPacketIo>(), clock_now());
    const NicCaps caps = port->nic().caps();
    engine_ = Engine::open(Params(), std::make_unique<OwnTurns>(std::move(port), caps, turns_), {})
                  .value();
    const auto connection = engine_->exclusively([&](Messenger& messenger, Nic&, Instant now) {
      const auto offered = messenger.open_send(NicIdentity{1}, now).value();
      messenger.break_flow(Direction::kSend, offered.connection);
      return offered.connection;
    });
    send_ = make_send_connection({.nic = {engine_, "nic", {}, {}}, .connection = connection}, {});
  }
  Request* send() {
    Request* const request = send_->isend(nullptr, 0, 0, nullptr).value();
    PACECAR_CHECK(request != nullptr);
    return request;
  }
  void finish(Request* request) {
    while (!settled(*request)) engine_->progress();
    EXPECT_FALSE(send_->test(request));
  }

  int turns_ = 0;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<SendConnection> send_;
};

TEST_F(SendConnectionTest, SingleSendLeavesAtOnceAfterARepeatedTest) {
  Request* const request = send();
  finish(request);
  const auto again = send_->test(request);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInternal);
  bool left_at_once = false;
  for (int i = 0; i < 1000 && !left_at_once; ++i) {  // the keeper may take the turn instead
    const int before = turns_;
    Request* const next = send();
    left_at_once = turns_ > before;
    finish(next);
  }
  EXPECT_TRUE(left_at_once);
}

}  // namespace
}  // namespace pacecar::connections_test
