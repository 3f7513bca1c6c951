// Messenger: the control words between the two ends of a flow, with any number of packets per turn
// of the NIC.
#include <gtest/gtest.h>

#include <numeric>

#include "cc/registry.h"
#include "tests/support/pending.h"
#include "tests/support/sim_host.h"

namespace pacecar::test::words_test {
namespace {

// One message from host 0 to host 1.
class Exchange {
 public:
  explicit Exchange(const SimHostConfig& config, size_t bytes = 1 << 20)
      : from_(bytes), to_(bytes) {
    std::iota(from_.begin(), from_.end(), uint8_t{1});
    for (size_t port = 0; port < 2; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port, config));
    }
    from_region_ = nic(0).register_memory(from_.data(), bytes, Access::kLocalRead).value();
    to_region_ = nic(1).register_memory(to_.data(), bytes, Access::kRemoteWrite).value();
    ends_ = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  }

  SoftNic& nic(size_t port) { return hosts_[port]->nic(); }
  Instant next_deadline(size_t port) { return hosts_[port]->next_deadline(); }
  FlowReport report() { return hosts_[0]->messenger().report(); }

  void receive() {
    received_.set(MessageRequest::State::kPending);
    received_.clear();
    received_.add(to_.data(), to_.size(), 0, {to_region_.remote_address, to_region_.key});
    ASSERT_TRUE(hosts_[1]->messenger().receive(ends_.receive, received_, network_.now()));
  }
  void send() {
    sent_.set(MessageRequest::State::kPending);
    ASSERT_TRUE(hosts_[0]->messenger().send(
        ends_.send, test::pending(sent_, {from_.data(), from_.size(), 0, from_region_.key})));
  }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }
  // Closes the connection, waits until the flow has ended, and connects again over a new flow.
  void connect_again() {
    hosts_[0]->messenger().close_send(ends_.send, network_.now());
    hosts_[1]->messenger().close_receive(ends_.receive);
    run_for(Duration::from_s(3));
    ASSERT_EQ(report().flows, 0U);
    ends_ = connect(*hosts_[0], *hosts_[1], 1, network_.now());
  }
  bool arrives(Duration limit) {
    const bool done = run(network_, hosts_, network_.now() + limit, [&] {
      return sent_.state() == MessageRequest::State::kDone &&
             received_.state() == MessageRequest::State::kDone;
    });
    return done && from_ == to_;
  }

 private:
  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<uint8_t> from_;
  std::vector<uint8_t> to_;
  MemoryRegion from_region_;
  MemoryRegion to_region_;
  ConnectionPair ends_;
  MessageSend sent_;
  MessageReceive received_;
};

TEST(MessengerWords, EveryCongestionControlMovesMessages) {
  for (const ControllerInfo& info : controllers()) {
    Exchange exchange({.congestion_control = std::string(info.name)});
    for (int i = 0; i < 3; ++i) {
      exchange.receive();
      exchange.send();
      EXPECT_TRUE(exchange.arrives(Duration::from_ms(20))) << info.name << " message " << i;
    }
  }
}

// The new flow has the NIC's flow number of the last one, but not that one's counts.
TEST(MessengerWords, FlowWithAReusedNumberMovesMessages) {
  for (const ControllerInfo& info : controllers()) {
    Exchange exchange({.congestion_control = std::string(info.name)});
    for (int i = 0; i < 3; ++i) {
      exchange.receive();
      exchange.send();
      EXPECT_TRUE(exchange.arrives(Duration::from_ms(20))) << info.name << " connection " << i;
      exchange.connect_again();
    }
  }
}

TEST(MessengerWords, OnePacketAtATimeMovesMessages) {
  Exchange exchange({.transmit = 1, .control_first = true});
  exchange.receive();
  exchange.send();
  EXPECT_TRUE(exchange.arrives(Duration::from_ms(20)));
}

// Demands go one way and credit the other while the message is sent: many words, each followed by
// the next before it is acknowledged.
TEST(MessengerWords, CreditIsGrantedWhileTheMessageIsSent) {
  Exchange exchange({.congestion_control = "rccc"});
  exchange.receive();
  exchange.send();
  ASSERT_TRUE(exchange.arrives(Duration::from_ms(1)));
  const FlowLimits limits = exchange.report().limits;
  EXPECT_NE(limits.credit, ~Bytes{0});
  EXPECT_GE(exchange.nic(1).counters().data_packets_sent, 10U) << "words with credit";
  EXPECT_GE(exchange.nic(0).counters().silent_packets_received, 10U);
}

// Only the grants of a flow with a backlog are repeated.
TEST(MessengerWords, GrantsAreRepeatedWhileAMessageIsSent) {
  Exchange exchange({.congestion_control = "pace"}, 10 << 20);
  exchange.receive();
  exchange.run_for(Duration::from_ms(100));
  const uint64_t idle = exchange.nic(1).counters().data_packets_sent;
  EXPECT_LE(idle, 2U) << "the CTS slot, and the grant for the idle flow";
  exchange.send();
  EXPECT_TRUE(exchange.arrives(Duration::from_ms(20)));
  EXPECT_GE(exchange.nic(1).counters().data_packets_sent, idle + 4);
}

TEST(MessengerWords, AllocatorOfTheLineRateGrantsOnlyInTheCtsSlot) {
  Exchange exchange({.congestion_control = "fixed"}, 10 << 20);
  exchange.receive();
  exchange.run_for(Duration::from_ms(100));
  exchange.send();
  EXPECT_TRUE(exchange.arrives(Duration::from_ms(20)));
  EXPECT_EQ(exchange.nic(1).counters().data_packets_sent, 1U) << "the CTS slot itself";
}

TEST(MessengerWords, UnknownAllocatorIsAnError) {
  Exchange exchange({});
  const auto messenger = Messenger::create(
      exchange.nic(0), {.allocator = "share", .line_rate = Rate::from_gbps(1)}, Instant());
  ASSERT_FALSE(messenger);
  EXPECT_EQ(messenger.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(messenger.error().message.find("share"), std::string::npos);
}

// An idle messenger needs no poll.
TEST(MessengerWords, IdleMessengerHasNoDeadline) {
  Exchange exchange({.congestion_control = "fixed"});
  exchange.receive();
  exchange.send();
  ASSERT_TRUE(exchange.arrives(Duration::from_ms(20)));
  exchange.run_for(Duration::from_ms(50));
  EXPECT_EQ(exchange.next_deadline(0), Instant::never());
  EXPECT_EQ(exchange.next_deadline(1), Instant::never());
}

}  // namespace
}  // namespace pacecar::test::words_test
