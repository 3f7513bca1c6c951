// The bootstrap of libfabric endpoints: two endpoints in one process, or an endpoint and a raw
// socket.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "net_plugin/libfabric/link/endpoint_bootstrap.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/own_network.h"
#include "tests/support/tcp.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::fabric::bootstrap_test {
namespace {

using Event = EndpointBootstrap::Event;

Address loopback(uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return *from_sockaddr(reinterpret_cast<const sockaddr*>(&address));
}

std::unique_ptr<EndpointBootstrap> opened() {
  return std::move(*EndpointBootstrap::open(loopback()));
}

Greeting greeting_of(const Address& name, uint64_t instance) {
  Greeting greeting{.instance = instance};
  greeting.set_name(name);
  return greeting;
}

// The next event of an endpoint; without one for 10 s the test fails. `caller` is polled meanwhile,
// to send its greeting, and must have no event.
Event next_event(EndpointBootstrap& of, EndpointBootstrap* caller = nullptr) {
  const auto until = EndpointBootstrap::Clock::now() + std::chrono::seconds(10);
  while (EndpointBootstrap::Clock::now() < until) {
    if (caller != nullptr) {
      EXPECT_TRUE(caller->poll().empty());
    }
    auto events = of.poll();
    EXPECT_LE(events.size(), 1U);
    if (!events.empty()) return std::move(events.front());
  }
  ADD_FAILURE() << "no event";
  return {};
}

TEST(FiBootstrap, EndedCallIsLostAtItsOtherSide) {
  const auto caller = opened();
  const auto called = opened();
  const auto outgoing =
      caller->call(called->address(), caller->address(), greeting_of(caller->address(), 1));
  const Event arrival = next_event(*called, caller.get());
  EXPECT_EQ(arrival.kind, Event::Kind::kCalled);
  EXPECT_EQ(arrival.greeting.instance, 1U);
  EXPECT_EQ(arrival.name, caller->address());
  called->answer(arrival.call, greeting_of(called->address(), 2));
  const Event answer = next_event(*caller);
  EXPECT_EQ(answer.kind, Event::Kind::kAnswered);
  EXPECT_EQ(answer.call, outgoing);
  EXPECT_EQ(answer.greeting.instance, 2U);
  caller->end(outgoing);
  const Event loss = next_event(*called);
  EXPECT_EQ(loss.kind, Event::Kind::kLost);
  EXPECT_EQ(loss.call, arrival.call);
}

// It may compute for long, and its kernel takes the call; a caller has no such excuse.
TEST(FiBootstrap, APeerThatMakesNoProgressIsWaitedForAndASilentCallerIsNot) {
  constexpr Duration kPatience = Duration::from_ms(20);
  const auto caller = std::move(*EndpointBootstrap::open(loopback(), {}, kPatience));
  const auto called = std::move(*EndpointBootstrap::open(loopback(), {}, kPatience));
  test::TcpEnd silent(called->address().port);
  caller->call(called->address(), caller->address(), greeting_of(caller->address(), 1));
  for (const Instant end = clock_now() + kPatience * 5; clock_now() < end;) {
    EXPECT_TRUE(caller->poll().empty());
  }
  const Event arrival = next_event(*called, caller.get());
  EXPECT_EQ(arrival.kind, Event::Kind::kCalled);
  called->answer(arrival.call, greeting_of(called->address(), 2));
  EXPECT_EQ(next_event(*caller).kind, Event::Kind::kAnswered);
  while (silent.receive()) EXPECT_TRUE(called->poll().empty());
}

TEST(FiBootstrap, AHostThatIsCutOffBeforeItsProcessAnswersIsNotWaitedFor) {
  const auto caller = *EndpointBootstrap::open(loopback(), {}, Duration::from_s(1));
  test::TcpServer silent;
  const Address name = loopback(silent.port());
  const auto call = caller->call(name, caller->address(), greeting_of(caller->address(), 1));
  test::TcpEnd end;
  while (!(end = silent.accept())) EXPECT_TRUE(caller->poll().empty());
  test::cut_off(silent.port());
  const Event lost = next_event(*caller);
  EXPECT_EQ(lost.kind, Event::Kind::kFailed);
  EXPECT_EQ(lost.call, call);
}

TEST(FiBootstrap, CallIsLostWhenTheCallerResetsBeforeTheAnswer) {
  const auto called = opened();
  FileDescriptor caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress address;
  const socklen_t bytes = to_sockaddr(called->address(), address);
  ASSERT_EQ(connect(caller.get(), &address.any, bytes), 0);
  const Greeting greeting = greeting_of(called->address(), 1);
  ASSERT_EQ(send(caller.get(), &greeting, sizeof greeting, 0),
            static_cast<ssize_t>(sizeof greeting));
  const Event arrival = next_event(*called);
  ASSERT_EQ(arrival.kind, Event::Kind::kCalled);
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(caller.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
  caller = FileDescriptor();
  called->answer(arrival.call, greeting);
  const Event loss = next_event(*called);
  EXPECT_EQ(loss.kind, Event::Kind::kLost);
  EXPECT_EQ(loss.call, arrival.call);
}

TEST(FiBootstrap, ANameCarriesNoScopeOfItsHost) {
  Address name{.scope_id = 7, .port = 8};
  name.ip[0] = 0xfe;
  name.ip[1] = 0x80;
  const auto sender = greeting_of(name, 1).sender();
  ASSERT_TRUE(sender);
  EXPECT_TRUE(same_ip(*sender, name));
  EXPECT_EQ(sender->port, 8U);
  EXPECT_EQ(sender->scope_id, 0U);
}

Greeting with_address(const Address& name) {
  Greeting greeting = greeting_of(name, 1);
  greeting.token_address = 4711;
  return greeting;
}

// The kernel identifies the process of the peer. Only then a memory address is passed.
TEST(FiBootstrap, WithinAHostBothEndsKnowThePeersProcess) {
  const auto caller = opened();
  const auto called = opened();
  for (const auto* one : {&caller, &called}) (*one)->enable_within_host((*one)->address());
  caller->call(called->address(), caller->address(), with_address(caller->address()));
  const Event arrival = next_event(*called, caller.get());
  EXPECT_EQ(arrival.process, getpid());
  EXPECT_EQ(arrival.greeting.token_address, 4711U);
  called->answer(arrival.call, with_address(called->address()));
  const Event answer = next_event(*caller);
  EXPECT_EQ(answer.kind, Event::Kind::kAnswered);
  EXPECT_EQ(answer.process, getpid());
  EXPECT_EQ(answer.greeting.token_address, 4711U);
}

std::shared_ptr<const FileDescriptor> some_memory() {
  return std::make_shared<FileDescriptor>(memfd_create("test", MFD_CLOEXEC));
}

// Descriptors of the same file have the same inode.
ino_t inode(const FileDescriptor& file) {
  struct stat status {};
  return fstat(file.get(), &status) == 0 ? status.st_ino : 0;
}

TEST(FiBootstrap, WithinAHostMemoryIsPassedWithTheGreetings) {
  const auto caller = opened();
  const auto called = opened();
  for (const auto* one : {&caller, &called}) (*one)->enable_within_host((*one)->address());
  const auto of_caller = some_memory();
  const auto of_called = some_memory();
  const auto outgoing =
      caller->call(called->address(), caller->address(), greeting_of(caller->address(), 1));
  ASSERT_TRUE(caller->is_within_host(outgoing));
  caller->hand_over(outgoing, of_caller);
  const Event arrival = next_event(*called, caller.get());
  EXPECT_EQ(inode(arrival.memory), inode(*of_caller));
  ASSERT_TRUE(called->is_within_host(arrival.call));
  called->hand_over(arrival.call, of_called);
  called->answer(arrival.call, greeting_of(called->address(), 2));
  EXPECT_EQ(inode(next_event(*caller).memory), inode(*of_called));
}

// How many descriptors this process has open.
size_t descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

// The caller sends descriptors with each byte of its greeting. One is kept until the call ends.
TEST(FiBootstrap, CallerCannotExhaustDescriptors) {
  const auto called = opened();
  called->enable_within_host(called->address());
  const FileDescriptor caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = "pacecar-fi-" + to_string(called->address());
  std::ranges::copy(path, address.sun_path + 1);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  ASSERT_EQ(connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  const auto memory = some_memory();
  (void)called->poll();
  const size_t before = descriptors();
  for (int i = 0; i < 50; ++i) {
    char byte = 'x';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {
        .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    const int handed[] = {memory->get(), memory->get()};
    std::memcpy(CMSG_DATA(header), handed, sizeof handed);
    ASSERT_EQ(sendmsg(caller.get(), &message, 0), 1);
    (void)called->poll();
  }
  EXPECT_LE(descriptors(), before + 1);
}

TEST(FiBootstrap, CallersWaitUntilThereIsADescriptor) {
  const auto caller = opened();
  const auto called = opened();
  (void)caller->call(called->address(), caller->address(), greeting_of(caller->address(), 1));
  EXPECT_TRUE(caller->poll().empty());
  {
    const test::DescriptorLimit none;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(called->poll().empty());
  }
  EXPECT_EQ(called->take_accept_error(), EMFILE);
  EXPECT_LE(called->take_accept_error(), 0) << "once";
  EXPECT_EQ(next_event(*called).kind, Event::Kind::kCalled);
}

// Otherwise the messages of the sender would be lost.
TEST(FiBootstrap, CallEndsWhenNoDescriptorIsLeft) {
  const auto caller = opened();
  const auto called = opened();
  for (const auto* one : {&caller, &called}) (*one)->enable_within_host((*one)->address());
  const auto outgoing =
      caller->call(called->address(), caller->address(), greeting_of(caller->address(), 1));
  caller->hand_over(outgoing, some_memory());
  EXPECT_TRUE(caller->poll().empty());  // sends the greeting, which `called` has not accepted
  {
    const FileDescriptor next(dup(0));
    const test::DescriptorLimit only_for_the_call(static_cast<rlim_t>(next.get()) + 2);
    EXPECT_TRUE(called->poll().empty());
    EXPECT_TRUE(called->poll().empty());
  }
  EXPECT_EQ(next_event(*caller).kind, Event::Kind::kFailed);
}

// As from another host, whose greeting may be copied from another process.
TEST(FiBootstrap, OverTcpNoProcessOrMemoryAddressIsPassed) {
  for (const bool caller_alone : {true, false}) {
    const auto caller = opened();
    const auto called = opened();
    const auto& one = caller_alone ? caller : called;
    one->enable_within_host(one->address());
    caller->call(called->address(), caller->address(), with_address(caller->address()));
    const Event arrival = next_event(*called, caller.get());
    EXPECT_EQ(arrival.process, 0);
    EXPECT_EQ(arrival.greeting.token_address, 0U);
    called->answer(arrival.call, with_address(called->address()));
    const Event answer = next_event(*caller);
    EXPECT_EQ(answer.process, 0);
    EXPECT_EQ(answer.greeting.token_address, 0U);
  }
}

TEST(FiBootstrap, AnotherUsersProcessIsCalledByTcp) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto called = opened();
  called->enable_within_host(called->address());
  const auto as_another = [&] {
    if (setuid(65534) != 0) std::_Exit(2);
    const auto caller = opened();
    caller->enable_within_host(caller->address());
    caller->call(called->address(), caller->address(), with_address(caller->address()));
    const Event answer = next_event(*caller);
    std::_Exit(answer.kind == Event::Kind::kAnswered && answer.process == 0 ? 0 : 1);
  };
  const pid_t child = fork();
  if (child == 0) as_another();
  const Event arrival = next_event(*called);
  EXPECT_EQ(arrival.process, 0);
  called->answer(arrival.call, with_address(called->address()));
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FiBootstrap, CallWithoutAListenerFails) {
  const auto caller = opened();
  const test::TcpNobody nobody;
  const Address name = *from_sockaddr(reinterpret_cast<const sockaddr*>(&nobody.address()));
  const auto outgoing = caller->call(name, caller->address(), greeting_of(caller->address(), 1));
  const Event failure = next_event(*caller);
  EXPECT_EQ(failure.kind, Event::Kind::kFailed);
  EXPECT_EQ(failure.call, outgoing);
  EXPECT_EQ(failure.error, ECONNREFUSED);
}

TEST(FiBootstrap, CallConnectedToItselfFails) {
  test::in_network(test::enter_network_with_one_local_port, [] {
    const auto caller = EndpointBootstrap::open(loopback(test::kOnlyLocalPort + 1));
    ASSERT_TRUE(caller) << caller.error().message;
    const Address nobody = loopback(test::kOnlyLocalPort);
    (*caller)->call(nobody, (*caller)->address(), greeting_of((*caller)->address(), 1));
    const Event failure = next_event(**caller);
    EXPECT_EQ(failure.kind, Event::Kind::kFailed);
    EXPECT_EQ(failure.error, ECONNREFUSED);
  });
}

}  // namespace
}  // namespace pacecar::fabric::bootstrap_test
