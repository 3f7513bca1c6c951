// udp_limit: measures what UDP sockets on a path can do without a protocol above them. The figures
// of the UDP packet I/O and of the transport are compared with these.
//
//   udp_limit stream   --address 127.0.0.1      sends joined datagrams as fast as one thread can
//   udp_limit pingpong --address 127.0.0.1      one datagram to and fro, both sides spinning
//
// Both ends are given the server's address, and one of them --server. The client prints one line of
// JSON.
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/perf/clock.h"
#include "bench/perf/must.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/parse_address.h"

namespace {

using pacecar::give_up;

constexpr int kFailed = 2;  // exit code

constexpr uint8_t kHello = 'H';  // one-byte datagrams; the server answers them
constexpr uint8_t kEnd = 'E';
constexpr int kBufferBytes = 16 << 20;
constexpr size_t kSourceBytes = 8 << 20;
constexpr size_t kSegmentBytes = 8240;  // of a datagram
constexpr size_t kHeaderBytes = 44;     // of them; the rest is payload
constexpr size_t kPayloadBytes = kSegmentBytes - kHeaderBytes;
constexpr size_t kSegments = 7;  // in one system call
constexpr size_t kPingBytes = 8;
constexpr size_t kReceiveBuffers = 8;
constexpr size_t kReceiveBytes = 65536;
constexpr int kAnswerTries = 200;
constexpr int kAnswerWaitMs = 50;

struct Options {
  std::string mode;
  std::string address;
  uint16_t port = 18599;
  double seconds = 3;
};

struct Summary {
  uint64_t bytes = 0;
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;
};

[[noreturn]] void die(const char* what) {
  give_up(fmt::format("{}: {}", what, std::strerror(errno)), kFailed);
}

int64_t now_ns() { return pacecar::perf::steady_now().ns(); }
int64_t cpu_ns() { return pacecar::perf::process_cpu_time().ns(); }

int open_socket(const Options& options, bool server) {
  const bool ipv6 = options.address.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + options.address + "]" : options.address;
  const auto address = pacecar::parse_address(host + ":" + std::to_string(options.port));
  if (!address) give_up(address.error().message, kFailed);
  pacecar::SocketAddress raw;
  const socklen_t length = pacecar::to_sockaddr(*address, raw);
  const int fd = socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (fd < 0) die("socket");
  for (const auto& [forced, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(fd, SOL_SOCKET, forced, &kBufferBytes, sizeof(kBufferBytes)) != 0) {
      setsockopt(fd, SOL_SOCKET, plain, &kBufferBytes, sizeof(kBufferBytes));
    }
  }
  if (server) {
    if (setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof(one)) != 0) die("UDP_GRO");
    if (bind(fd, &raw.any, length) != 0) die("bind");
  } else if (connect(fd, &raw.any, length) != 0) {
    die("connect");
  }
  return fd;
}

// Sends one byte until an answer comes back; nullopt: none within ten seconds.
template <typename Answer>
std::optional<Answer> ask(int fd, uint8_t question) {
  for (int i = 0; i < kAnswerTries; ++i) {
    // A server that has not started yet answers with an ICMP error, which either call reports.
    if (send(fd, &question, 1, 0) < 0 && errno != ECONNREFUSED) die("send");
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, kAnswerWaitMs) <= 0) continue;
    Answer answer;
    if (recv(fd, &answer, sizeof(answer), MSG_DONTWAIT) == sizeof(answer)) return answer;
    usleep(kAnswerWaitMs * 1000);
  }
  return std::nullopt;
}

// The server's receive side: receives bursts of joined datagrams, and does not copy them.
class Receiver {
 public:
  explicit Receiver(int fd) : fd_(fd), memory_(kReceiveBuffers * kReceiveBytes) {
    for (size_t i = 0; i < kReceiveBuffers; ++i) {
      iovecs_[i] = {memory_.data() + i * kReceiveBytes, kReceiveBytes};
    }
  }

  // The number of messages, each one datagram or several joined ones. `flags`: of recvmmsg.
  int receive(int flags) {
    for (size_t i = 0; i < kReceiveBuffers; ++i) {
      msghdr& message = messages_[i].msg_hdr;
      message = {};
      message.msg_name = &names_[i];
      message.msg_namelen = sizeof(names_[i]);
      message.msg_iov = &iovecs_[i];
      message.msg_iovlen = 1;
      message.msg_control = controls_[i].data();
      message.msg_controllen = controls_[i].size();
    }
    return recvmmsg(fd_, messages_.data(), kReceiveBuffers, flags, nullptr);
  }

  size_t bytes(int i) const { return messages_[static_cast<size_t>(i)].msg_len; }
  uint8_t* data(int i) { return static_cast<uint8_t*>(iovecs_[static_cast<size_t>(i)].iov_base); }

  // The one-byte datagram in message i, alone or joined as the last; 0 if there is none.
  uint8_t command(int i) {
    msghdr& message = messages_[static_cast<size_t>(i)].msg_hdr;
    size_t segment = bytes(i);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
      int value = 0;
      std::memcpy(&value, CMSG_DATA(c), sizeof(value));
      segment = static_cast<size_t>(value);
    }
    const bool one_byte = segment == 1 || (segment > 0 && bytes(i) % segment == 1);
    return one_byte ? data(i)[bytes(i) - 1] : 0;
  }

  void reply(int i, const void* data, size_t size) {
    const msghdr& message = messages_[static_cast<size_t>(i)].msg_hdr;
    sendto(fd_, data, size, MSG_DONTWAIT, static_cast<sockaddr*>(message.msg_name),
           message.msg_namelen);
  }

 private:
  int fd_;
  std::vector<uint8_t> memory_;
  std::array<mmsghdr, kReceiveBuffers> messages_{};
  std::array<iovec, kReceiveBuffers> iovecs_{};
  std::array<pacecar::SocketAddress, kReceiveBuffers> names_{};
  alignas(cmsghdr)
      std::array<std::array<uint8_t, CMSG_SPACE(sizeof(int))>, kReceiveBuffers> controls_{};
};

// Calls `take(message)` for each message until the client ends; answers with the summary, and for a
// while again, as the client asks again when an answer was lost. `flags`: of recvmmsg.
template <typename Take>
void serve(int fd, int flags, const Summary& summary, const Take& take) {
  Receiver receiver(fd);
  pollfd ready{fd, POLLIN, 0};
  for (bool ended = false; !ended || poll(&ready, 1, 4 * kAnswerWaitMs) > 0;) {
    const int count = receiver.receive(ended ? MSG_DONTWAIT : flags);
    if (count < 0 && errno != EAGAIN) die("recvmmsg");
    for (int i = 0; i < count; ++i) {
      if (!ended) take(receiver, i);
      if (receiver.command(i) != kEnd) continue;
      receiver.reply(i, &summary, sizeof(summary));
      ended = true;
    }
  }
}

void serve_stream(int fd) {
  Summary summary;
  int64_t first = 0;
  int64_t cpu_start = 0;
  serve(fd, MSG_WAITFORONE, summary, [&](Receiver& receiver, int i) {
    if (receiver.command(i) == kHello) receiver.reply(i, &kHello, 1);
    if (receiver.bytes(i) > 1) {
      const int64_t now = now_ns();
      if (first == 0) {
        first = now;
        cpu_start = cpu_ns();
      }
      summary.wall_ns = now - first;
      summary.bytes += receiver.bytes(i);
    }
    if (receiver.command(i) == kEnd) summary.cpu_ns = cpu_ns() - cpu_start;
  });
}

void serve_pingpong(int fd) {
  serve(fd, MSG_DONTWAIT, Summary(), [](Receiver& receiver, int i) {
    if (receiver.command(i) != kEnd) receiver.reply(i, receiver.data(i), receiver.bytes(i));
  });
}

// One joined datagram: per segment a header and the next payload of the source buffer.
class JoinedMessage {
 public:
  JoinedMessage() {
    headers_.fill(0xA5);
    for (size_t i = 0; i < kSegments; ++i) {
      iovecs_[2 * i] = {headers_.data() + i * kHeaderBytes, kHeaderBytes};
    }
    message_.msg_iov = iovecs_.data();
    message_.msg_iovlen = iovecs_.size();
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
    cmsghdr* segment = CMSG_FIRSTHDR(&message_);
    segment->cmsg_level = SOL_UDP;
    segment->cmsg_type = UDP_SEGMENT;
    segment->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    constexpr uint16_t kBytes = kSegmentBytes;
    std::memcpy(CMSG_DATA(segment), &kBytes, sizeof(kBytes));
  }

  const msghdr& next() {
    for (size_t i = 1; i < iovecs_.size(); i += 2) {
      if (at_ + kPayloadBytes > source_.size()) at_ = 0;
      iovecs_[i] = {source_.data() + at_, kPayloadBytes};
      at_ += kPayloadBytes;
    }
    return message_;
  }

 private:
  size_t at_ = 0;
  std::vector<uint8_t> source_ = std::vector<uint8_t>(kSourceBytes, 0x5A);
  std::array<uint8_t, kHeaderBytes * kSegments> headers_;
  std::array<iovec, 2 * kSegments> iovecs_{};
  alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(uint16_t))> control_{};
  msghdr message_{};
};

void print(const nlohmann::ordered_json& result) { fmt::print("{}\n", result.dump()); }

void run_stream(int fd, const Options& options) {
  JoinedMessage message;
  const int64_t cpu_start = cpu_ns();
  const int64_t start = now_ns();
  const int64_t end = start + static_cast<int64_t>(options.seconds * 1e9);
  uint64_t sent = 0;
  while (now_ns() < end) {
    const ssize_t bytes = sendmsg(fd, &message.next(), 0);
    if (bytes < 0) die("sendmsg (does a segment fit the MTU?)");
    sent += static_cast<uint64_t>(bytes);
  }
  const int64_t cpu = cpu_ns() - cpu_start;
  const auto summary = ask<Summary>(fd, kEnd);
  if (!summary) die("no summary from the server");
  const double sent_gb = static_cast<double>(sent) * 1e-9;
  const double received_gb = static_cast<double>(summary->bytes) * 1e-9;
  const double wall_s = static_cast<double>(summary->wall_ns) * 1e-9;
  print({{"gbps", received_gb * 8 / wall_s},
         {"lost_share", 1 - received_gb / sent_gb},
         {"cpu_s_per_gb_sender", static_cast<double>(cpu) * 1e-9 / sent_gb},
         {"cpu_s_per_gb_receiver", static_cast<double>(summary->cpu_ns) * 1e-9 / received_gb}});
}

void run_pingpong(int fd, const Options& options) {
  constexpr int64_t kLostAfterNs = 1'000'000'000;
  std::array<uint8_t, kPingBytes> ball{};
  std::vector<int64_t> rtts;
  rtts.reserve(static_cast<size_t>(options.seconds * 1e6) + 1);
  const int64_t end = now_ns() + static_cast<int64_t>(options.seconds * 1e9);
  // At least one round trip, if there is an answer at all.
  const int64_t limit = end + 30'000'000'000;
  for (int64_t start = now_ns(); start < (rtts.empty() ? limit : end); start = now_ns()) {
    if (send(fd, ball.data(), ball.size(), MSG_DONTWAIT) < 0) die("send");
    int64_t rtt = 0;
    while (recv(fd, ball.data(), ball.size(), MSG_DONTWAIT) < 0 && rtt < kLostAfterNs) {
      rtt = now_ns() - start;
    }
    if (rtt < kLostAfterNs && rtts.size() < rtts.capacity()) rtts.push_back(now_ns() - start);
  }
  if (!ask<Summary>(fd, kEnd) || rtts.empty()) die("no answer from the server");
  std::sort(rtts.begin(), rtts.end());
  const auto quantile_us = [&](double q) {
    const double last = static_cast<double>(rtts.size() - 1);
    return static_cast<double>(rtts[static_cast<size_t>(q * last)]) * 1e-3;
  };
  print({{"rtt_us_median", quantile_us(0.5)}, {"rtt_us_p99", quantile_us(0.99)}});
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool server = false;
  CLI::App app("Measures what bare UDP sockets can do on a path.");
  app.add_option("mode", options.mode)->required()->check(CLI::IsMember({"stream", "pingpong"}));
  app.add_option("--address", options.address, "the server's IP address")->required();
  app.option_defaults()->always_capture_default();
  app.add_option("--port", options.port);
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--server", server, "be the server of one client");
  CLI11_PARSE(app, argc, argv);
  const bool streams = options.mode == "stream";
  const int fd = open_socket(options, server);
  if (server) {
    streams ? serve_stream(fd) : serve_pingpong(fd);
    return 0;
  }
  if (!ask<uint8_t>(fd, kHello)) die("no server answers");
  streams ? run_stream(fd, options) : run_pingpong(fd, options);
  return 0;
}
