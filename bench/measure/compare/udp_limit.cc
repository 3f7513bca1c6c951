// udp_limit: measures what UDP sockets on a path can do without a protocol above them. The figures
// of the UDP packet I/O and of the transport are compared with these.
//
//   udp_limit stream   --address 127.0.0.1      sends joined datagrams as fast as one thread can
//   udp_limit pingpong --address 127.0.0.1      one datagram to and fro, both sides spinning
//
// Both ends are given the server's address, and one of them --server. A TCP connection at the same
// port ends the test, and carries what the server counted. The client prints one line of JSON.
#include <netinet/udp.h>
#include <sys/time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/must.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/parse_address.h"

namespace {

using pacecar::give_up;

constexpr int kFailed = 2;  // exit code

constexpr int kBufferBytes = 16 << 20;
constexpr int kSegmentBytes = 8240;  // of a datagram
constexpr size_t kCallBytes = 7 * kSegmentBytes;
constexpr size_t kSourceBytes = 146 * kCallBytes;
constexpr size_t kPingBytes = 8;
constexpr size_t kReceiveBytes = 65536;
constexpr int64_t kLostAfterNs = 1'000'000'000;
constexpr timeval kLookInterval{.tv_sec = 0, .tv_usec = 50'000};  // whether the client is done

struct Options {
  std::string mode;
  std::string address;
  uint16_t port = 18599;
  double seconds = 3;
  bool server = false;
};

// What the server received.
struct Summary {
  uint64_t bytes = 0;
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;
};

[[noreturn]] void die(const char* what) {
  give_up(fmt::format("{}: {}", what, std::strerror(errno)), kFailed);
}

void check(int result, const char* what) {
  if (result < 0) die(what);
}

int64_t now_ns() { return pacecar::cli::steady_now().ns(); }
int64_t cpu_ns() { return pacecar::cli::process_cpu_time().ns(); }

template <typename Value>
int set(int fd, int level, int option, const Value& value) {
  return setsockopt(fd, level, option, &value, sizeof(value));
}

struct Sockets {
  int data;
  int control;
};

Sockets open_sockets(const Options& options) {
  const bool ipv6 = options.address.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + options.address + "]" : options.address;
  const auto address = pacecar::parse_address(fmt::format("{}:{}", host, options.port));
  if (!address) give_up(address.error().message, kFailed);
  pacecar::SocketAddress raw;
  const socklen_t length = pacecar::to_sockaddr(*address, raw);
  const int data = socket(raw.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int control = socket(raw.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (const auto& [forced, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (set(data, SOL_SOCKET, forced, kBufferBytes) != 0)
      set(data, SOL_SOCKET, plain, kBufferBytes);
  }
  if (!options.server) {
    check(connect(control, &raw.any, length), "no server answers");
    check(connect(data, &raw.any, length), "connect");
    return {data, control};
  }
  check(set(data, SOL_UDP, UDP_GRO, 1), "UDP_GRO");
  check(set(data, SOL_SOCKET, SO_RCVTIMEO, kLookInterval), "SO_RCVTIMEO");
  check(bind(data, &raw.any, length), "bind");
  set(control, SOL_SOCKET, SO_REUSEADDR, 1);
  check(bind(control, &raw.any, length), "bind");
  check(listen(control, 1), "listen");
  return {data, accept(control, nullptr, nullptr)};
}

// Whether the client is done. Its thread sleeps until then.
class End {
 public:
  explicit End(int control)
      : thread_([this, control] {
          char nothing = 0;
          while (recv(control, &nothing, 1, 0) > 0) {
          }
          came_ = true;
        }) {}
  bool came() const { return came_; }

 private:
  std::atomic<bool> came_ = false;
  std::jthread thread_;
};

// Receives joined datagrams.
Summary serve_stream(int data, const End& end) {
  std::vector<uint8_t> buffer(kReceiveBytes);
  Summary summary;
  int64_t first = 0;
  int64_t cpu_start = 0;
  while (!end.came()) {
    const ssize_t bytes = recv(data, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) continue;
    const int64_t now = now_ns();
    if (first == 0) {
      first = now;
      cpu_start = cpu_ns();
    }
    summary.wall_ns = now - first;
    summary.bytes += static_cast<uint64_t>(bytes);
  }
  summary.cpu_ns = cpu_ns() - cpu_start;
  return summary;
}

Summary serve_pingpong(int data, const End& end) {
  std::array<uint8_t, kPingBytes> ball;
  pacecar::SocketAddress from;
  while (!end.came()) {
    socklen_t length = sizeof(from);
    const ssize_t bytes =
        recvfrom(data, ball.data(), ball.size(), MSG_DONTWAIT, &from.any, &length);
    if (bytes > 0) sendto(data, ball.data(), ball.size(), MSG_DONTWAIT, &from.any, length);
  }
  return {};
}

Summary finish(const Sockets& sockets) {
  Summary summary;
  shutdown(sockets.control, SHUT_WR);
  if (recv(sockets.control, &summary, sizeof(summary), MSG_WAITALL) != sizeof(summary)) {
    die("no summary from the server");
  }
  return summary;
}

nlohmann::json run_stream(const Sockets& sockets, double seconds) {
  // Each system call sends the next part of a buffer that no cache holds.
  std::vector<uint8_t> source(kSourceBytes, 0x5A);
  check(set(sockets.data, SOL_UDP, UDP_SEGMENT, kSegmentBytes), "UDP_SEGMENT");
  const int64_t cpu_start = cpu_ns();
  const int64_t end = now_ns() + static_cast<int64_t>(seconds * 1e9);
  uint64_t sent = 0;
  for (size_t at = 0; now_ns() < end; at = (at + kCallBytes) % source.size()) {
    const ssize_t bytes = send(sockets.data, source.data() + at, kCallBytes, 0);
    if (bytes < 0) die("send (does a segment fit the MTU?)");
    sent += static_cast<uint64_t>(bytes);
  }
  const int64_t cpu = cpu_ns() - cpu_start;
  const Summary summary = finish(sockets);
  const double sent_gb = static_cast<double>(sent) * 1e-9;
  const double received_gb = static_cast<double>(summary.bytes) * 1e-9;
  return {{"gbps", received_gb * 8 / (static_cast<double>(summary.wall_ns) * 1e-9)},
          {"lost_share", 1 - received_gb / sent_gb},
          {"cpu_s_per_gb_sender", static_cast<double>(cpu) * 1e-9 / sent_gb},
          {"cpu_s_per_gb_receiver", static_cast<double>(summary.cpu_ns) * 1e-9 / received_gb}};
}

nlohmann::json run_pingpong(const Sockets& sockets, double seconds) {
  std::array<uint8_t, kPingBytes> ball{};
  std::vector<int64_t> times_ns;
  times_ns.reserve(static_cast<size_t>(seconds * 1e6) + 1);
  const int64_t end = now_ns() + static_cast<int64_t>(seconds * 1e9);
  for (int64_t start = now_ns(); start < end; start = now_ns()) {
    check(static_cast<int>(send(sockets.data, ball.data(), ball.size(), MSG_DONTWAIT)), "send");
    int64_t time_ns = 0;
    while (recv(sockets.data, ball.data(), ball.size(), MSG_DONTWAIT) < 0 &&
           time_ns < kLostAfterNs) {
      time_ns = now_ns() - start;
    }
    if (time_ns < kLostAfterNs) times_ns.push_back(now_ns() - start);
  }
  finish(sockets);
  if (times_ns.empty()) give_up("no answer from the server", kFailed);
  std::ranges::sort(times_ns);
  const auto quantile_us = [&](double q) {
    const double last = static_cast<double>(times_ns.size() - 1);
    return static_cast<double>(times_ns[static_cast<size_t>(q * last)]) * 1e-3;
  };
  return {{"rtt_us_median", quantile_us(0.5)}, {"rtt_us_p99", quantile_us(0.99)}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what bare UDP sockets can do on a path.");
  app.add_option("mode", options.mode)->required()->check(CLI::IsMember({"stream", "pingpong"}));
  app.add_option("--address", options.address, "the server's IP address")->required();
  app.option_defaults()->always_capture_default();
  app.add_option("--port", options.port);
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--server", options.server, "be the server of one client");
  CLI11_PARSE(app, argc, argv);
  const bool streams = options.mode == "stream";
  const Sockets sockets = open_sockets(options);
  if (options.server) {
    const End end(sockets.control);
    const Summary summary =
        streams ? serve_stream(sockets.data, end) : serve_pingpong(sockets.data, end);
    check(static_cast<int>(send(sockets.control, &summary, sizeof(summary), 0)), "send");
    return 0;
  }
  const auto result = (streams ? run_stream : run_pingpong)(sockets, options.seconds);
  fmt::print("{}\n", result.dump());
  return 0;
}
