#include "bench/perf/control_listener.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/tcp.h"

namespace pacecar::perf::control_listener_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Duration kPatience = Duration::from_s(30);
constexpr const char* kHere = "127.0.0.1";
constexpr const char* kFriend = "127.0.0.2";  // source address of the last client

ControlListener listener_at(const std::vector<std::string>& hosts) {
  auto listener = ControlListener::open(hosts, 0);
  if (!listener) throw std::runtime_error(listener.error().message);
  return std::move(*listener);
}

ControlChannel client_of(const ControlListener& listener, const std::string& host = kHere,
                         const std::string& source = {}) {
  auto client = ControlChannel::connect(host, listener.port(), kPatience, source);
  if (!client) throw std::runtime_error(client.error().message);
  return std::move(*client);
}

void say(const ControlChannel& channel, const std::string& text) {
  ASSERT_EQ(::send(channel.descriptor(), text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
}

TEST(ControlListenerTest, ServesEachOfItsAddressesAndNoOther) {
  ControlListener listener = listener_at({"127.0.0.2", kHere});
  for (const char* host : {"127.0.0.2", kHere}) {
    ControlChannel client = client_of(listener, host);
    ASSERT_TRUE(client.send({{"type", "hello"}}));
    const auto caller = listener.accept("hello");
    ASSERT_TRUE(caller);
    EXPECT_THAT(caller->channel.peer(), ::testing::StartsWith("127.0.0."));
  }
  EXPECT_FALSE(ControlChannel::connect("127.0.0.3", listener.port(), kPatience));
}

TEST(ControlListenerTest, ServesBothFamiliesAtAllAddresses) {
  ControlListener listener = listener_at({"*"});
  ControlChannel client = client_of(listener, "127.0.0.3");
  ASSERT_TRUE(client.send({{"type", "hello"}, {"x", 1}}));
  const auto caller = listener.accept("hello");
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->greeting["x"], 1);
}

TEST(ControlListenerTest, ErrorNamesAnAddressOfAnotherHost) {
  for (const char* host : {"192.0.2.1", "not a host name"}) {
    const auto listener = ControlListener::open({host}, 0);
    ASSERT_FALSE(listener);
    EXPECT_THAT(listener.error().message, HasSubstr(host));
  }
}

TEST(ControlListenerTest, ErrorNamesAPortInUse) {
  const ControlListener first = listener_at({kHere});
  const auto second = ControlListener::open({kHere}, first.port());
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(first.port())));
  EXPECT_THAT(second.error().message, HasSubstr("-p"));
}

// A port that is free at one address need not be free at another.
TEST(ControlListenerTest, ChosenPortIsFreeAtAllAddresses) {
  std::vector<ControlListener> others;
  for (int i = 0; i < 800; ++i) others.push_back(listener_at({kHere}));
  for (int i = 0; i < 200; ++i) {
    const auto both = ControlListener::open({"127.0.0.2", kHere}, 0);
    ASSERT_TRUE(both) << both.error().message;
  }
}

TEST(ControlListenerTest, ErrorWithoutAServerSaysToStartIt) {
  const test::TcpNobody nobody;
  const auto channel = ControlChannel::connect(kHere, nobody.port(), kPatience);
  ASSERT_FALSE(channel);
  EXPECT_THAT(channel.error().message, HasSubstr("start the server there first"));
}

TEST(ControlListenerTest, SilentClientsDoNotDelayOthers) {
  ControlListener listener = listener_at({kHere});
  std::vector<ControlChannel> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(client_of(listener));
  for (const ControlChannel& one : silent) say(one, "{\"type\":\"hel");
  ControlChannel client = client_of(listener);
  ASSERT_TRUE(client.send({{"type", "hello"}}));
  size_t sent_away = 0;
  ASSERT_TRUE(listener.accept("hello", [&](const Error&) { ++sent_away; }));
  EXPECT_EQ(sent_away, 0U) << "the silent clients still have time";
}

TEST(ControlListenerTest, InvalidClientsAreRefusedAndDisconnected) {
  ControlListener listener = listener_at({kHere});
  const std::vector<std::string> words = {"GET / HTTP/1.1\r\n",
                                          "[1]\n",
                                          "{\"type\":\"join\"}\n",
                                          "{\"type\":7}\n",
                                          "\n",
                                          "{\"type\":" + std::string(100'000, '[') + "\n",
                                          ""};
  std::vector<ControlChannel> strangers;
  for (const std::string& word : words) {
    strangers.push_back(client_of(listener));
    say(strangers.back(), word);
  }
  std::vector<std::string> why;
  std::atomic<bool> over = false;
  std::thread last([&] {  // connects once all strangers were refused, the silent one too
    for (ControlChannel& stranger : strangers) EXPECT_FALSE(stranger.expect("welcome", kPatience));
    // On a slow host the listener may disconnect this client, too: then it comes again.
    while (!over) {
      ControlChannel client = client_of(listener, kHere, kFriend);
      if (client.send({{"type", "hello"}})) static_cast<void>(client.receive(kPatience));
    }
  });
  auto caller = listener.accept("hello", [&](const Error& error) {
    if (error.message.find(kFriend) == std::string::npos) why.push_back(error.message);
  });
  over = true;
  if (caller) static_cast<void>(caller->channel.send({{"type", "welcome"}}));
  last.join();
  EXPECT_TRUE(caller);
  EXPECT_THAT(why, AllOf(SizeIs(words.size()), Each(HasSubstr("127.0.0.1:"))));
}

TEST(ControlListenerTest, WaitingClientsAreBounded) {
  ControlListener listener = listener_at({kHere});
  std::vector<ControlChannel> silent;
  size_t sent_away = 0;
  for (size_t i = 0; i < ControlListener::kMaxWaiting + 10; ++i) {
    silent.push_back(client_of(listener));
    if (i % 10 != 0) continue;  // empties the kernel's queue
    ControlChannel client = client_of(listener);
    ASSERT_TRUE(client.send({{"type", "hello"}}));
    ASSERT_TRUE(listener.accept("hello", [&](const Error&) { ++sent_away; }));
  }
  EXPECT_GE(sent_away, 8U);
}

}  // namespace
}  // namespace pacecar::perf::control_listener_test
