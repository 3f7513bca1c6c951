// queue_probe: measures how long small datagrams wait between two network namespaces. One process
// has a socket in each, so that both times are of one clock: just before sendto, and the kernel's
// time stamp of the arrival. Each probe goes once over the --shaped path and once over the --plain
// one, which has no queue: delays on it are the machine's.
//
// Probes are sent at random times, 500 a second, until SIGTERM or SIGINT. Prints one JSON array
// with an entry per probe: [CLOCK_MONOTONIC seconds, us on the shaped path, us on the plain one];
// -1: lost.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/perf/must.h"

namespace {

using pacecar::give_up;

constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int64_t kLingerNs = kNsPerS / 10;  // for probes that still wait in the queue
constexpr double kRate = 500;                // probes a second
constexpr size_t kPathCount = 2;             // shaped, plain
constexpr double kLost = -1;

volatile sig_atomic_t g_stop = 0;

[[noreturn]] void give_up_by_errno(const std::string& what) {
  give_up(fmt::format("{} ({})", what, std::strerror(errno)));
}

int64_t ns_of(const timespec& time) { return time.tv_sec * kNsPerS + time.tv_nsec; }

int64_t time_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return ns_of(time);
}

void enter(const std::string& space) {
  const int file = open(("/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) != 0) {
    give_up_by_errno(
        fmt::format("cannot enter the network namespace {}: make it first, be root", space));
  }
  close(file);
}

sockaddr_in address_of(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    give_up(fmt::format("'{}' is no IPv4 address", text));
  }
  return address;
}

int make_socket() {
  const int made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) give_up_by_errno("cannot make a socket");
  return made;
}

struct Probe {
  int64_t at_ns;                            // CLOCK_MONOTONIC
  std::array<int64_t, kPathCount> sent_ns;  // CLOCK_REALTIME, which the kernel stamps with
  std::array<double, kPathCount> delay_us{kLost, kLost};
};

// One path. The constructor makes the receiving end, in its namespace.
class Path {
 public:
  explicit Path(const std::string& address) : address_(address_of(address)), in_(make_socket()) {
    const int on = 1;
    socklen_t length = sizeof address_;
    if (bind(in_, reinterpret_cast<sockaddr*>(&address_), length) != 0 ||
        getsockname(in_, reinterpret_cast<sockaddr*>(&address_), &length) != 0 ||
        setsockopt(in_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0) {
      give_up_by_errno(fmt::format("cannot receive at {}", address));
    }
  }
  void open_sender() { out_ = make_socket(); }

  int64_t send(uint64_t number) const {
    const int64_t now = time_ns(CLOCK_REALTIME);
    // A refused probe counts as lost.
    static_cast<void>(sendto(out_, &number, sizeof number, 0,
                             reinterpret_cast<const sockaddr*>(&address_), sizeof address_));
    return now;
  }

  void receive(std::vector<Probe>& probes, size_t path) const {
    uint64_t number = 0;
    iovec data{&number, sizeof number};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(timespec))> control{};
    for (;;) {
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      if (recvmsg(in_, &message, 0) != sizeof number) return;
      const cmsghdr* const stamp = CMSG_FIRSTHDR(&message);
      if (stamp == nullptr || number >= probes.size()) continue;
      timespec time{};
      std::memcpy(&time, CMSG_DATA(stamp), sizeof time);
      probes[number].delay_us[path] =
          static_cast<double>(ns_of(time) - probes[number].sent_ns[path]) * 1e-3;
    }
  }

 private:
  sockaddr_in address_;
  int in_;
  int out_ = -1;
};

void sleep_until(int64_t time) {
  const timespec deadline{time / kNsPerS, time % kNsPerS};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr);
}

std::vector<Probe> measure(std::array<Path, kPathCount>& paths) {
  std::vector<Probe> probes;
  std::minstd_rand random(1);
  // Random, so that periodic traffic is sampled at all of its phases.
  std::uniform_real_distribution<double> gap(0.5, 1.5);
  const auto receive = [&] {
    for (size_t i = 0; i < kPathCount; ++i) paths[i].receive(probes, i);
  };
  for (int64_t next = time_ns(CLOCK_MONOTONIC); g_stop == 0;) {
    next += static_cast<int64_t>(gap(random) * kNsPerS / kRate);
    sleep_until(next);
    probes.push_back({.at_ns = time_ns(CLOCK_MONOTONIC), .sent_ns = {}});
    for (size_t i = 0; i < kPathCount; ++i) {
      probes.back().sent_ns[i] = paths[i].send(probes.size() - 1);
    }
    receive();
  }
  sleep_until(time_ns(CLOCK_MONOTONIC) + kLingerNs);
  receive();
  return probes;
}

}  // namespace

int main(int argc, char** argv) {
  std::string from;
  std::string to;
  std::string shaped;
  std::string plain;
  CLI::App app{"Measures how long datagrams wait between two network namespaces, until SIGTERM."};
  app.add_option("--from", from, "Namespace that sends")->required();
  app.add_option("--to", to, "Namespace that receives")->required();
  app.add_option("--shaped", shaped, "Address in it, reached through the queue")->required();
  app.add_option("--plain", plain, "Address in it, reached past the queue")->required();
  CLI11_PARSE(app, argc, argv);

  for (const int number : {SIGTERM, SIGINT}) signal(number, [](int) { g_stop = 1; });
  // At a lower priority probes would be sent only while a processor is idle.
  const sched_param priority{.sched_priority = 1};
  static_cast<void>(sched_setscheduler(0, SCHED_FIFO, &priority));
  prctl(PR_SET_TIMERSLACK, 1);
  enter(to);
  std::array<Path, kPathCount> paths{Path(shaped), Path(plain)};
  enter(from);
  for (Path& path : paths) path.open_sender();

  std::vector<std::string> entries;
  for (const Probe& probe : measure(paths)) {
    entries.push_back(fmt::format("[{:.6f},{:.2f},{:.2f}]", static_cast<double>(probe.at_ns) * 1e-9,
                                  probe.delay_us[0], probe.delay_us[1]));
  }
  fmt::print("[{}]\n", fmt::join(entries, ","));
  return 0;
}
