#include "bench/perf/control_channel.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/own_network.h"

namespace pacecar::perf::control_channel_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr Duration kLong = Duration::from_s(30);
constexpr Duration kShort = Duration::from_ms(1);

// A channel whose peer is a bare socket, so that it can send any bytes.
class ControlChannelTest : public ::testing::Test {
 protected:
  ControlChannelTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    channel_.emplace(FileDescriptor(fds[0]), "peer:1");
    peer_ = FileDescriptor(fds[1]);
  }

  void say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(peer_.get(), text.data(), text.size(), 0);
      if (n < 0 && errno == EAGAIN) continue;
      ASSERT_GT(n, 0);
      text.remove_prefix(static_cast<size_t>(n));
    }
  }

  std::string bytes_to_peer() {
    char bytes[65536];
    const ssize_t n = ::recv(peer_.get(), bytes, sizeof bytes, 0);
    return n > 0 ? std::string(bytes, static_cast<size_t>(n)) : "";
  }

  std::optional<ControlChannel> channel_;
  FileDescriptor peer_;
};

TEST_F(ControlChannelTest, MessageIsOneLine) {
  ASSERT_TRUE(channel_->send({{"type", "hello"}, {"text", "two\nlines"}}));
  const std::string line = bytes_to_peer();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(Json::parse(line)["text"], "two\nlines");
}

TEST_F(ControlChannelTest, MessagesArriveInPiecesAndTogether) {
  say(R"({"type":"a"}
{"type":"b"}
{"ty)");
  EXPECT_TRUE(channel_->expect("a", kLong));
  EXPECT_TRUE(channel_->expect("b", kLong));
  const auto none = channel_->poll();
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, std::nullopt);
  say("pe\":\"c\"}\n");
  const auto some = channel_->poll();
  ASSERT_TRUE(some);
  ASSERT_TRUE(*some);
  EXPECT_EQ((**some)["type"], "c");
}

TEST_F(ControlChannelTest, SilentPeerIsAnErrorAfterTheLimit) {
  const auto message = channel_->expect("a", kShort);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code, ErrorCode::kPeer);
  EXPECT_THAT(message.error().message, HasSubstr("did not answer"));
}

TEST_F(ControlChannelTest, ClosedPeerIsAnErrorOnceItsLastMessageIsRead) {
  say("{\"type\":\"last\"}\n");
  peer_ = FileDescriptor();
  const auto poll = [this] {
    const auto message = channel_->poll();
    return message && *message;
  };
  EXPECT_TRUE(poll());
  const auto after = channel_->poll();
  ASSERT_FALSE(after);
  EXPECT_THAT(after.error().message, HasSubstr("went away"));
  EXPECT_FALSE(channel_->send({{"type", "x"}}));
}

TEST_F(ControlChannelTest, CheckOfThePeerFailsOnceThePeerIsGone) {
  EXPECT_TRUE(channel_->check_peer());
  say("{\"type\":\"a\"}\n{\"ty");
  EXPECT_TRUE(channel_->check_peer());
  say("pe\":\"b\"}\n");
  EXPECT_TRUE(channel_->check_peer());
  EXPECT_TRUE(channel_->expect("a", kLong)) << "check_peer() keeps messages";
  EXPECT_TRUE(channel_->expect("b", kLong));
  peer_ = FileDescriptor();
  const auto gone = channel_->check_peer();
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("went away"));
}

TEST_F(ControlChannelTest, CheckOfThePeerFailsWithTheErrorOfThePeer) {
  say("{\"type\":\"error\",\"message\":\"no luck\"}\n");
  const auto gave_up = channel_->check_peer();
  ASSERT_FALSE(gave_up);
  EXPECT_THAT(gave_up.error().message, HasSubstr("no luck"));
}

TEST_F(ControlChannelTest, InvalidMessagesAreErrorsOfThePeer) {
  for (const char* garbage :
       {"GET / HTTP/1.1\r\n", "\n", "[1,2]\n", "3\n", "{\"type\":}\n", "\xff\xfe\n", "null\n"}) {
    say(garbage);
    const auto message = channel_->receive(kLong);
    ASSERT_FALSE(message) << garbage;
    EXPECT_EQ(message.error().code, ErrorCode::kPeer);
  }
}

TEST_F(ControlChannelTest, MessageOfAnotherTypeIsRefused) {
  say("{\"type\":\"a\"}\n{\"type\":7}\n{}\n");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(channel_->expect("b", kLong));
}

// A copy of such a message takes a stack frame for each of its levels.
TEST_F(ControlChannelTest, DeepNestingIsRefused) {
  const std::string deep = std::string(80'000, '[') + std::string(80'000, ']');
  std::thread peer([&] { say("{\"type\":" + deep + "}\n{\"parameters\":" + deep + "}\n"); });
  for (int i = 0; i < 2; ++i) {
    const auto message = channel_->expect("hello", kLong);
    ASSERT_FALSE(message);
    EXPECT_THAT(message.error().message, HasSubstr("does not speak pacecar's protocol"));
  }
  peer.join();
}

TEST_F(ControlChannelTest, LengthOfALineIsBounded) {
  const std::string chunk(4096, 'x');
  Result<std::optional<Json>> message;
  size_t said = 0;
  while (message && said < 2 * ControlChannel::kMaxLine) {
    say(chunk);
    said += chunk.size();
    message = channel_->poll();
  }
  EXPECT_FALSE(message);
  EXPECT_LE(said, ControlChannel::kMaxLine + 2 * chunk.size());
}

TEST_F(ControlChannelTest, ErrorOfThePeerIsPassedOn) {
  say("{\"type\":\"error\",\"message\":\"no NIC here\"}\n");
  const auto message = channel_->expect("a", kLong);
  ASSERT_FALSE(message);
  EXPECT_THAT(message.error().message, HasSubstr("no NIC here"));
}

TEST_F(ControlChannelTest, ErrorOfThePeerIsMadePrintable) {
  say("{\"type\":\"error\",\"message\":\"\\u001b[2Jgone\"}\n");
  const auto message = channel_->expect("a", kLong);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().message.find('\x1b'), std::string::npos);
}

TEST_F(ControlChannelTest, ErrorOfThePeerExplainsAFailure) {
  const Error failure{ErrorCode::kPeer, "connection lost"};
  say("{\"type\":\"stop\"}\n{\"type\":\"error\",\"message\":\"bad data\"}\n");
  EXPECT_THAT(channel_->explain(failure).message, HasSubstr("bad data"));
}

TEST_F(ControlChannelTest, OtherMessagesOfThePeerDoNotExplainAFailure) {
  const Error failure{ErrorCode::kPeer, "connection lost"};
  std::atomic<bool> over = false;
  std::thread talker([&] {
    const std::string_view word = "{\"type\":\"x\"}\n";
    while (!over) ::send(peer_.get(), word.data(), word.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  EXPECT_EQ(channel_->explain(failure).message, "connection lost");
  over = true;
  talker.join();
}

TEST_F(ControlChannelTest, FailureWithoutAnErrorOfThePeerIsUnchanged) {
  const Error failure{ErrorCode::kPeer, "connection lost"};
  peer_ = FileDescriptor();
  EXPECT_EQ(channel_->explain(failure).message, "connection lost");
}

TEST(ControlConnectTest, UnknownHostIsNotFound) {
  const auto channel = ControlChannel::connect("not a host name", 1, kLong);
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().code, ErrorCode::kNotFound);
}

TEST(ControlConnectTest, SocketConnectedToItselfIsNoListener) {
  test::in_network(test::enter_network_with_one_local_port, [] {
    const auto channel = ControlChannel::connect("127.0.0.1", test::kOnlyLocalPort, kLong);
    ASSERT_FALSE(channel);
    EXPECT_THAT(channel.error().message, HasSubstr("nobody listens on 127.0.0.1 port"));
  });
}

TEST(ControlConnectTest, AddressesOfANameAreSaid) {
  test::in_network(test::enter_network_with_one_local_port, [] {
    const auto channel = ControlChannel::connect("localhost", test::kOnlyLocalPort, kLong);
    ASSERT_FALSE(channel);
    EXPECT_THAT(channel.error().message, HasSubstr("localhost ("));
    EXPECT_THAT(channel.error().message, HasSubstr("127.0.0.1"));
  });
}

// From now on this process, in a network of its own, has these names.
void replace_hosts_file(const std::string& lines) {
  const std::string path = testing::TempDir() + "hosts" + std::to_string(getpid());
  std::ofstream(path) << lines;
  ASSERT_EQ(unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(mount(path.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr), 0);
  std::filesystem::remove(path);
}

// A socket that listens on 127.0.0.1, and its port.
std::pair<FileDescriptor, uint16_t> listening() {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  socklen_t size = sizeof own;
  EXPECT_EQ(bind(fd.get(), address, size), 0);
  EXPECT_EQ(listen(fd.get(), 1), 0);
  getsockname(fd.get(), address, &size);
  return {std::move(fd), ntohs(own.sin_port)};
}

TEST(ControlConnectTest, AddressesOfTheSourcesFamilyAreTried) {
  test::in_network(test::enter_own_network, [] {
    replace_hosts_file("::1 two\n127.0.0.1 two\n127.0.0.1 four\n");
    const auto [listener, port] = listening();
    EXPECT_TRUE(ControlChannel::connect("two", port, kLong, "127.0.0.1"));
    const auto none = ControlChannel::connect("four", port, kLong, "::1");
    ASSERT_FALSE(none);
    EXPECT_THAT(none.error().message, HasSubstr("not of one family"));
    const auto foreign = ControlChannel::connect("two", port, kLong, "192.0.2.1");
    ASSERT_FALSE(foreign);
    EXPECT_THAT(foreign.error().message, HasSubstr("no address of this host"));
  });
}

TEST(ControlConnectTest, AddressThatRefusesIsSaidBeforeOneWithoutRoute) {
  test::in_network(test::enter_own_network, [] {
    replace_hosts_file("127.0.0.1 two\n192.0.2.1 two\n");
    const auto channel = ControlChannel::connect("two", 9, kLong);
    ASSERT_FALSE(channel);
    EXPECT_THAT(channel.error().message, HasSubstr("nobody listens"));
  });
}

TEST(ControlConnectTest, BracketsOfAnAddressAreTaken) { EXPECT_TRUE(resolve("[::1]", 1)); }

}  // namespace
}  // namespace pacecar::perf::control_channel_test
