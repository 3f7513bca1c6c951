// What preflight asks the network and the kernel: on the loopback, and with made-up netlink
// answers.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/preflight/kernel_probes.h"
#include "bench/preflight/peer_path.h"

namespace pacecar::preflight::probes_test {
namespace {

constexpr uint64_t kFourKilobytes = 4096 + 96;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// A UDP socket on the loopback that nobody reads.
class DeafPort {
 public:
  DeafPort() : fd_(socket(AF_INET, SOCK_DGRAM, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, any, size), 0);
    EXPECT_EQ(getsockname(fd_, any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  ~DeafPort() { close(fd_); }
  uint16_t port() const { return port_; }
  // From now on the kernel refuses datagrams of other sockets. The port stays taken.
  void refuse_others() {
    const sockaddr_in own = loopback(port_);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
  }

 private:
  int fd_;
  uint16_t port_ = 0;
};

// Answers every datagram until it is destroyed; other processes may send some, too.
class Answering {
 public:
  explicit Answering(ProbeListener& listener)
      : listener_(listener), thread_([this] { answer(); }) {}
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  ~Answering() {
    over_ = true;
    const sockaddr_in there = loopback(listener_.port());
    const auto* const any = reinterpret_cast<const sockaddr*>(&there);
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    while (!ended_) {  // the thread waits for a datagram
      sendto(fd, nullptr, 0, 0, any, sizeof(there));
      usleep(1000);
    }
    close(fd);
    thread_.join();
  }

 private:
  void answer() {
    bool good = true;
    while (good && !over_) good = listener_.answer_one();
    EXPECT_TRUE(good);
    ended_ = true;
  }

  ProbeListener& listener_;
  std::atomic<bool> over_ = false;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

TEST(PreflightPeer, ListenerProvesBothWays) {
  auto listener = ProbeListener::open("", 0);
  ASSERT_TRUE(listener) << listener.error().message;
  const Answering answering(*listener);
  const PeerPath path =
      probe_peer("127.0.0.1", {.port = listener->port(), .tries = 1, .wait = Duration::from_s(20)});
  EXPECT_EQ(path.error, "");
  EXPECT_EQ(path.proof, PathProof::kBothWays);
  EXPECT_EQ(path.largest_bytes, kFourKilobytes);
  EXPECT_EQ(path.wanted_bytes, kFourKilobytes);
}

TEST(PreflightPeer, RefusalProvesOneWay) {
  DeafPort closed;
  closed.refuse_others();
  const PeerPath path =
      probe_peer("127.0.0.1", {.port = closed.port(), .tries = 1, .wait = Duration::from_s(20)});
  EXPECT_EQ(path.proof, PathProof::kOneWay);
  EXPECT_EQ(path.largest_bytes, kFourKilobytes);
}

TEST(PreflightPeer, SilenceProvesNothing) {
  const DeafPort deaf;
  const PeerPath path =
      probe_peer("127.0.0.1", {.port = deaf.port(), .tries = 2, .wait = Duration::from_ms(1)});
  EXPECT_EQ(path.error, "");
  EXPECT_EQ(path.proof, PathProof::kNone);
  EXPECT_EQ(path.largest_bytes, 0U);
}

TEST(PreflightPeer, UnresolvableNameIsAnError) {
  const PeerPath path = probe_peer("no host", {.port = 9});
  EXPECT_FALSE(path.has_address);
  EXPECT_NE(path.error, "");
}

TEST(PreflightPeer, SecondListenerOnAPortIsRefused) {
  const auto first = ProbeListener::open("", 0);
  ASSERT_TRUE(first);
  const auto second = ProbeListener::open("", first->port());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
}

TEST(PreflightPeer, ListenerAnswersOnlyAtItsAddress) {
  auto listener = ProbeListener::open("127.0.0.1", 0);
  ASSERT_TRUE(listener) << listener.error().message;
  const ProbePlan plan{.port = listener->port(), .tries = 1, .wait = Duration::from_s(20)};
  EXPECT_EQ(probe_peer("127.0.0.2", plan).proof, PathProof::kOneWay) << "nobody listens there";
  const Answering answering(*listener);
  EXPECT_EQ(probe_peer("127.0.0.1", plan).proof, PathProof::kBothWays);
  EXPECT_FALSE(ProbeListener::open("192.0.2.1", 0)) << "the address of another host";
  EXPECT_EQ(ProbeListener::open("no host", 0).error().code, ErrorCode::kNotFound);
}

TEST(PreflightPeer, AnswersPerSecondAreLimited) {
  AnswerBudget budget;
  for (int second = 5; second < 8; ++second) {
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 10 * AnswerBudget::kPerSecond; ++i) {
      taken += budget.take(Instant::from_ns(int64_t{1'000'000'000} * second + i)) ? 1 : 0;
    }
    EXPECT_EQ(taken, AnswerBudget::kPerSecond);
  }
}

void append(std::vector<std::byte>& bytes, const void* data, size_t size) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + size);
}

// The kernel's answer for an interface with PFC on these priorities.
std::vector<std::byte> pfc_answer(uint8_t enabled) {
  ieee_pfc pfc{};
  pfc.pfc_en = enabled;
  nlattr inner{.nla_len = NLA_HDRLEN + sizeof(pfc), .nla_type = DCB_ATTR_IEEE_PFC};
  nlattr outer{.nla_len = static_cast<uint16_t>(NLA_HDRLEN + inner.nla_len),
               .nla_type = DCB_ATTR_IEEE | NLA_F_NESTED};
  const char name[] = "eth2\0\0\0";
  nlattr name_header{.nla_len = NLA_HDRLEN + 5, .nla_type = DCB_ATTR_IFNAME};
  dcbmsg dcb{.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET, .dcb_pad = 0};
  nlmsghdr header{};
  header.nlmsg_type = RTM_GETDCB;
  header.nlmsg_len =
      static_cast<uint32_t>(NLMSG_HDRLEN + sizeof(dcb) + NLA_HDRLEN + sizeof(name) + outer.nla_len);
  std::vector<std::byte> bytes;
  append(bytes, &header, sizeof(header));
  append(bytes, &dcb, sizeof(dcb));
  append(bytes, &name_header, sizeof(name_header));
  append(bytes, name, sizeof(name));
  append(bytes, &outer, sizeof(outer));
  append(bytes, &inner, sizeof(inner));
  append(bytes, &pfc, sizeof(pfc));
  return bytes;
}

TEST(PreflightPfc, PrioritiesAreParsedFromTheKernelsAnswer) {
  const auto pfc = parse_pfc(pfc_answer(0x18));
  ASSERT_TRUE(pfc);
  EXPECT_EQ(*pfc, 0x18);
}

TEST(PreflightPfc, TruncatedAnswerIsRefused) {
  const auto answer = pfc_answer(0x18);
  for (size_t size = 0; size < answer.size(); ++size) {
    EXPECT_FALSE(parse_pfc(std::span(answer).first(size))) << size;
  }
}

TEST(PreflightPfc, KernelErrorIsRefused) {
  auto answer = pfc_answer(0x18);
  const uint16_t type = NLMSG_ERROR;
  std::memcpy(answer.data() + offsetof(nlmsghdr, nlmsg_type), &type, sizeof(type));
  EXPECT_FALSE(parse_pfc(answer));
}

TEST(PreflightProbes, UnknownInterfaceHasNoPfcAndNoStatistics) {
  for (const char* name : {"", "nosuch0", "a-name-that-is-too-long-for-an-interface"}) {
    EXPECT_FALSE(ask_pfc(name));
    EXPECT_TRUE(ask_statistics(name).empty());
  }
}

}  // namespace
}  // namespace pacecar::preflight::probes_test
