#include "bench/preflight/peer_path.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

namespace pacecar::preflight {
namespace {

constexpr size_t kMaxPacket = 65535;
constexpr size_t kUdpHeader = 8;
constexpr size_t kIpv4Header = 20;
constexpr size_t kIpv6Header = 40;
// Small enough for every path; then those that RDMA MTUs need, and plain Ethernet's.
constexpr uint64_t kSmall = 256 + kRoceHeaders;
constexpr std::array<uint64_t, 4> kSizes = {4096 + kRoceHeaders, 2048 + kRoceHeaders, 1500,
                                            1024 + kRoceHeaders};

// The start of every probe; the rest is zero. Questions and answers differ, so that two listeners
// never answer each other.
struct Probe {
  std::array<char, 8> magic;
  uint64_t nonce;
};
constexpr std::array<char, 8> kQuestion = {'P', 'C', 'R', 'M', 'T', 'U', '1', '?'};
constexpr std::array<char, 8> kAnswer = {'P', 'C', 'R', 'M', 'T', 'U', '1', '!'};

enum class Reply : uint8_t { kSilence, kTooBig, kRefused, kAnswered, kUnreachable };

std::string describe(int error) { return std::generic_category().message(error); }

// Sends whole datagrams up to the interface's MTU, whatever path MTU the kernel has learnt.
void forbid_fragments(int fd, int family) {
  const int probe_v4 = IP_PMTUDISC_PROBE;
  setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe_v4, sizeof(probe_v4));
  if (family != AF_INET6) return;
  const int probe_v6 = IPV6_PMTUDISC_PROBE;
  const int yes = 1;
  setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe_v6, sizeof(probe_v6));
  setsockopt(fd, IPPROTO_IPV6, IPV6_DONTFRAG, &yes, sizeof(yes));
}

// A UDP socket connected to the peer.
class Prober {
 public:
  explicit Prober(Duration wait) : wait_(wait) {}

  // Sets path.has_address, and path.error if it fails.
  void connect_to(uint16_t port, PeerPath& path) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(path.host.c_str(), std::to_string(port).c_str(), &hints, &found);
    path.has_address = failed == 0;
    if (failed != 0) {
      path.error = fmt::format("no address of it is known: {}", gai_strerror(failed));
      return;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
      fd_ = FileDescriptor(socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (fd_ && connect(fd_.get(), address->ai_addr, address->ai_addrlen) == 0) {
        headers_ = kUdpHeader + (address->ai_family == AF_INET6 ? kIpv6Header : kIpv4Header);
        forbid_fragments(fd_.get(), address->ai_family);
        path.error.clear();
        return;
      }
      path.error = fmt::format("it cannot be reached: {}", describe(errno));
    }
  }

  Reply probe(uint64_t ip_bytes, uint32_t tries) {
    Reply reply = Reply::kSilence;
    for (uint32_t i = 0; i < tries && reply == Reply::kSilence; ++i) reply = probe_once(ip_bytes);
    return reply;
  }

 private:
  Reply probe_once(uint64_t ip_bytes) {
    Probe probe{.magic = kQuestion, .nonce = 0};
    if (getrandom(&probe.nonce, sizeof(probe.nonce), 0) < 0) return Reply::kSilence;
    std::vector<std::byte> datagram(ip_bytes - headers_);
    std::memcpy(datagram.data(), &probe, sizeof(probe));
    if (send(fd_.get(), datagram.data(), datagram.size(), 0) < 0) return reply_of(errno);
    return await_answer(probe.nonce, datagram.size());
  }

  // Each wrong or late datagram restarts the wait, so their number is bounded as well.
  Reply await_answer(uint64_t nonce, size_t size) {
    std::vector<std::byte> datagram(kMaxPacket);
    for (int i = 0; i < 16; ++i) {
      pollfd event = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
      if (poll(&event, 1, static_cast<int>(wait_.ns() / 1'000'000)) <= 0) return Reply::kSilence;
      const ssize_t got = recv(fd_.get(), datagram.data(), datagram.size(), 0);
      if (got < 0) return reply_of(errno);
      if (static_cast<size_t>(got) != size) continue;
      Probe answer;
      std::memcpy(&answer, datagram.data(), sizeof(answer));
      if (answer.magic == kAnswer && answer.nonce == nonce) return Reply::kAnswered;
    }
    return Reply::kSilence;
  }

  static Reply reply_of(int error) {
    if (error == ECONNREFUSED) return Reply::kRefused;
    if (error == EMSGSIZE) return Reply::kTooBig;
    return error == EHOSTUNREACH || error == ENETUNREACH ? Reply::kUnreachable : Reply::kSilence;
  }

  FileDescriptor fd_;
  size_t headers_ = 0;
  Duration wait_;
};

// Finds an address of this host, for a socket of both families; an empty name: any address.
bool find_address(const std::string& host, sockaddr_in6& address) {
  address.sin6_family = AF_INET6;
  if (host.empty()) return true;
  addrinfo hints{};
  hints.ai_family = AF_INET6;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_V4MAPPED;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  return true;
}

bool arrived(Reply reply) { return reply == Reply::kRefused || reply == Reply::kAnswered; }

}  // namespace

PeerPath probe_peer(const std::string& host, const ProbePlan& plan) {
  PeerPath path;
  path.host = host;
  path.wanted_bytes = kSizes.front();
  Prober prober(plan.wait);
  prober.connect_to(plan.port, path);
  if (!path.error.empty()) return path;
  const Reply small = prober.probe(kSmall, plan.tries);
  if (small == Reply::kUnreachable) path.error = "there is no route to it";
  if (!arrived(small)) return path;
  path.proof = small == Reply::kAnswered ? PathProof::kBothWays : PathProof::kOneWay;
  path.largest_bytes = kSmall;
  for (const uint64_t size : kSizes) {
    if (!arrived(prober.probe(size, plan.tries))) continue;
    path.largest_bytes = size;
    break;
  }
  return path;
}

bool AnswerBudget::take(Instant now) {
  if (now - second_ >= Duration::from_s(1)) {
    second_ = now;
    taken_ = 0;
  }
  return taken_++ < kPerSecond;
}

Result<ProbeListener> ProbeListener::open(const std::string& host, uint16_t port) {
  sockaddr_in6 address{};
  if (!find_address(host, address)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("'{}' is no address: name one of this host with --bind", host));
  }
  address.sin6_port = htons(port);
  FileDescriptor fd(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) {
    return fail(ErrorCode::kSystem, fmt::format("no UDP socket: {}", describe(errno)));
  }
  const int no = 0;
  setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  forbid_fragments(fd.get(), AF_INET6);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), any, size) != 0 || getsockname(fd.get(), any, &size) != 0) {
    const int error = errno;
    return fail(error == EADDRINUSE ? ErrorCode::kUnavailable
                : error == EACCES   ? ErrorCode::kPermission
                                    : ErrorCode::kSystem,
                fmt::format("cannot listen on UDP port {}: {}; choose another one with --port, or "
                            "an address of this host with --bind",
                            port, describe(error)));
  }
  return ProbeListener(std::move(fd), ntohs(address.sin6_port));
}

bool ProbeListener::answer_one() {
  std::vector<std::byte> datagram(kMaxPacket);
  sockaddr_in6 from{};
  socklen_t from_size = sizeof(from);
  auto* any = reinterpret_cast<sockaddr*>(&from);
  const ssize_t got = recvfrom(fd_.get(), datagram.data(), datagram.size(), 0, any, &from_size);
  // A sender that is gone causes an error of a later call, which is no reason to stop.
  if (got < 0) return errno == EINTR || errno == ECONNREFUSED;
  Probe probe;
  if (static_cast<size_t>(got) < sizeof(probe)) return true;
  std::memcpy(&probe, datagram.data(), sizeof(probe));
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  if (probe.magic != kQuestion || !budget_.take(Instant::from_ns(now.count()))) return true;
  probe.magic = kAnswer;
  std::memcpy(datagram.data(), &probe, sizeof(probe));
  // An answer larger than this side's MTU is not sent, and the peer correctly sees silence.
  sendto(fd_.get(), datagram.data(), static_cast<size_t>(got), 0, any, from_size);
  return true;
}

}  // namespace pacecar::preflight
