// pacing: measures how evenly the packets of a paced flow leave and arrive (README.md).
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "bench/perf/must.h"
#include "transport/base/histogram.h"
#include "transport/engine/clock.h"
#include "transport/engine/engine.h"
#include "transport/engine/soft_port.h"
#include "transport/io/decorators/decorator.h"
#include "transport/io/dpdk/dpdk_io.h"

namespace pacecar {
namespace {

constexpr Bytes kMessageBytes = 1 << 20;
constexpr size_t kInFlight = 8;
constexpr Bytes kMtu = 4096;
constexpr Bytes kLeastData = 1024;            // smaller packets are the protocol's own
constexpr Bytes kHeadersBelow = 38 + 20 + 8;  // Ethernet with preamble, FCS and gap; IP; UDP
constexpr Duration kLinkUp = Duration::from_ms(400);
constexpr Duration kRested = Duration::from_s(1);
constexpr Duration kWarmUp = Duration::from_ms(50);
constexpr std::array<NicIdentity, 2> kIdentities = {NicIdentity{1}, NicIdentity{2}};

constexpr int kCannotRunHere = 77;

void sleep_for(Duration time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time.ns())); }

struct Passing {
  Instant time;
  Bytes wire_bytes = 0;
};

// Records the data packets that pass.
class Witness final : public PacketIoDecorator {
 public:
  Witness(std::unique_ptr<PacketIo> inner, std::vector<Passing>& seen)
      : PacketIoDecorator(std::move(inner)), seen_(seen) {}

  size_t send(std::span<const TxPacket> packets, Instant now) override {
    const size_t count = inner().send(packets, now);
    note(packets.first(count), [](const TxPacket& packet) { return packet.size(); });
    return count;
  }
  size_t receive(std::span<RxPacket> packets, Instant now) override {
    const size_t count = inner().receive(packets, now);
    note(packets.first(count), [](const RxPacket& packet) { return packet.bytes.size(); });
    return count;
  }

 private:
  template <typename Packets, typename Size>
  void note(const Packets& packets, Size size) {
    if (packets.empty()) return;
    const Instant time = clock_now();
    for (const auto& packet : packets) {
      if (size(packet) >= kLeastData && seen_.size() < seen_.capacity()) {
        seen_.push_back({time, size(packet) + kHeadersBelow});
      }
    }
  }

  std::vector<Passing>& seen_;
};

struct Figures {
  uint64_t packets = 0;
  uint64_t most_at_once = 0;
  double rate_error = 0;                   // share
  std::array<uint64_t, 5> gap_error_ns{};  // percentiles 50, 90, 99, 99.9, 100
};
constexpr Duration kPatience = Duration::from_s(30);
constexpr std::array<double, 5> kPercentiles = {50, 90, 99, 99.9, 100};

Figures figures_of(std::span<const Passing> seen, Rate rate) {
  const auto begin = std::ranges::find_if(
      seen, [&](const Passing& at) { return at.time - seen.front().time >= kWarmUp; });
  const std::span<const Passing> part(begin, seen.end());
  if (part.size() < 2) give_up("hardly a packet passed: is the machine very busy?");
  Figures figures{.packets = part.size() - 1};
  Histogram errors;
  Bytes bytes = 0;
  uint64_t at_once = 1;
  for (size_t i = 1; i < part.size(); ++i) {
    const Duration gap = part[i].time - part[i - 1].time;
    const double ideal_ns = static_cast<double>(part[i - 1].wire_bytes) * 8 / rate.gbps();
    errors.record(static_cast<uint64_t>(std::abs(static_cast<double>(gap.ns()) - ideal_ns)));
    bytes += part[i - 1].wire_bytes;
    at_once = gap == Duration() ? at_once + 1 : 1;
    figures.most_at_once = std::max(figures.most_at_once, at_once);
  }
  const double ns = static_cast<double>((part.back().time - part.front().time).ns());
  figures.rate_error = static_cast<double>(bytes) * 8 / ns / rate.gbps() - 1;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    figures.gap_error_ns[i] = errors.value_at_percentile(kPercentiles[i]);
  }
  return figures;
}

struct Settings {
  std::vector<double> rates_gbps = {10, 25, 50};
  double seconds = 0.4;
  std::array<int, 2> cores = {0, 1};
  bool real_time = true;
};

void write_all(int fd, std::span<const uint8_t> bytes) {
  if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    give_up("the other process has ended");
  }
}

std::vector<uint8_t> read_some(int fd) {
  std::vector<uint8_t> bytes(4096);
  const ssize_t got = read(fd, bytes.data(), bytes.size());
  if (got <= 0) give_up("the other process has ended");
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

// One end. The sender connects and keeps messages in flight; the receiver keeps buffers posted.
class End {
 public:
  End(bool sends, const Settings& settings, Rate rate, const std::string& socket, int peer)
      : sends_(sends), rate_(rate), peer_(peer), memory_(kInFlight * kMessageBytes) {
    seen_.resize(
        static_cast<size_t>((settings.seconds + 1) * rate.gbps() * 1e9 / 8 / kMtu));  // touched
    seen_.clear();
    const LogSink log{[](void*, LogLevel level, std::string_view line) {
                        if (level <= LogLevel::kWarn) fmt::print(stderr, "{}\n", line);
                      },
                      nullptr};
    const auto device =
        must(parse_dpdk_device("net_memif0", fmt::format("role={},socket={},socket-abstract=no",
                                                         sends ? "client" : "server", socket)));
    Params params;
    params.cc = "fixed";
    params.rate_max = rate;
    params.mtu = kMtu;
    auto opened = open_dpdk({.device = device, .paths = params.paths}, log);
    if (!opened) give_up(opened.error().message, kCannotRunHere);
    auto io = std::move(opened->io);
    look_until_link_is_up(*io);
    be_alone(settings);
    engine_ = must(Engine::open(
        params,
        make_soft_port(params, std::make_unique<Witness>(std::move(io), seen_), clock_now()),
        kIdentities[sends ? 0 : 1]));
    engine_->exclusively([&](Messenger& messenger, Nic& nic, Instant now) {
      region_ = must(nic.register_memory(memory_.data(), memory_.size(), Access::kRemoteWrite));
      connect(messenger, now);
    });
  }

  Figures run(double seconds) {
    const Instant end = clock_now() + Duration::from_ns(static_cast<int64_t>(seconds * 1e9));
    // At least until two packets have passed after the warm-up, but at most kPatience longer.
    const auto measured = [&] {
      return seen_.size() > 2 && seen_[seen_.size() - 2].time - seen_.front().time >= kWarmUp;
    };
    while (clock_now() < end || (!measured() && clock_now() < end + kPatience)) {
      for (size_t i = 0; i < kInFlight; ++i) {
        if (requests_[next_].state() == MessageRequest::State::kPending) break;
        submit(next_);
        next_ = (next_ + 1) % kInFlight;
      }
      engine_->progress();
    }
    return figures_of(seen_, rate_);
  }

 private:
  static void look_until_link_is_up(PacketIo& io) {
    std::array<RxPacket, 1> packets;
    for (const Instant end = clock_now() + kLinkUp; clock_now() < end;) {
      io.receive(packets, clock_now());
      sleep_for(Duration::from_ms(1));
    }
  }

  void be_alone(const Settings& settings) const {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<size_t>(settings.cores[sends_ ? 1 : 0]), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) {
      give_up("this process cannot choose its core: give others with --cores");
    }
    sleep_for(kRested);
    const sched_param priority{.sched_priority = 5};
    if (settings.real_time && sched_setscheduler(0, SCHED_RR, &priority) != 0) {
      give_up("no right to real-time priority: run as root, or give --no-real-time");
    }
  }

  void connect(Messenger& messenger, Instant now) {
    if (sends_) {
      const auto offered = must(messenger.open_send(kIdentities[1], now));
      write_all(peer_, offered.offer);
      connection_ = offered.connection;
      must(messenger.finish_send(connection_, read_some(peer_), now));
      engine_->sends().attach(connection_);
    } else {
      const auto answered = must(messenger.open_receive(read_some(peer_), now));
      write_all(peer_, answered.answer);
      connection_ = answered.connection;
      engine_->receives().attach(connection_);
    }
  }

  void submit(size_t slot) {
    if (requests_[slot].state() == MessageRequest::State::kFailed) give_up("a message failed");
    requests_[slot].set(MessageRequest::State::kPending);
    uint8_t* const data = &memory_[slot * kMessageBytes];
    if (sends_) {
      engine_->sends().push(
          connection_,
          {.data = data, .size = kMessageBytes, .key = region_.key, .request = &requests_[slot]});
    } else {
      ReceiveOperation operation{.count = 1, .request = &requests_[slot]};
      operation.buffers[0] = {.data = data, .size = kMessageBytes};
      operation.buffers[0].set_remote(remote_address_of(region_, data));
      engine_->receives().push(connection_, operation);
    }
    engine_->submitted();
  }

  const bool sends_;
  const Rate rate_;
  const int peer_;
  std::vector<uint8_t> memory_;
  std::vector<Passing> seen_;
  std::array<MessageRequest, kInFlight> requests_;
  std::unique_ptr<Engine> engine_;
  ConnectionId connection_ = 0;
  MemoryRegion region_;
  size_t next_ = 0;
};

void print(const char* where, Rate rate, const Figures& figures) {
  fmt::print("{:>5.0f} {:<8} {:>8} {:>+9.3f}%", rate.gbps(), where, figures.packets,
             figures.rate_error * 100);
  for (const uint64_t ns : figures.gap_error_ns) {
    fmt::print(" {:>8.2f}", static_cast<double>(ns) / 1e3);
  }
  fmt::print(" {:>8}\n", figures.most_at_once);
  std::fflush(stdout);
}

// Forks one end, which prints its figures: first the sender, then the receiver.
void start(bool sends, const Settings& settings, Rate rate, const std::string& socket,
           const std::array<int, 2>& peers) {
  if (fork() != 0) return;
  close(peers[sends ? 1 : 0]);
  const int peer = peers[sends ? 0 : 1];
  End end(sends, settings, rate, socket, peer);
  const Figures figures = end.run(settings.seconds);
  if (!sends) read_some(peer);
  print(sends ? "left" : "arrived", rate, figures);
  if (sends) write_all(peer, std::array<uint8_t, 1>());
  std::_Exit(0);
}

// Returns the exit code.
int measure(const Settings& settings, Rate rate) {
  std::string folder = "/tmp/pacingXXXXXX";
  if (mkdtemp(folder.data()) == nullptr) give_up("cannot make a folder in /tmp");
  const std::string socket = folder + "/memif";
  std::array<int, 2> peers{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, peers.data()) != 0) give_up("no socket pair");
  for (const bool sends : {true, false}) start(sends, settings, rate, socket, peers);
  for (const int fd : peers) close(fd);
  int code = 0;
  for (int status = 0; wait(&status) > 0;) code = std::max(code, WEXITSTATUS(status));
  unlink(socket.c_str());
  rmdir(folder.c_str());
  return code;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  pacecar::Settings settings;
  CLI::App app("How evenly a paced flow's packets leave and arrive over shared memory.");
  app.add_option("--rates", settings.rates_gbps, "in Gb/s")
      ->delimiter(',')
      ->check(CLI::Range(1., 400.));
  app.add_option("--seconds", settings.seconds, "of each rate")->check(CLI::Range(0.1, 0.8));
  app.add_option("--cores", settings.cores, "of receiver and sender")->delimiter(',');
  app.add_flag("!--no-real-time", settings.real_time, "run at normal priority");
  CLI11_PARSE(app, argc, argv);
  fmt::print(
      "Gb/s           packets rate error   gap error in us: p50, p90, p99, p99.9, most; at once\n");
  std::fflush(stdout);
  int code = 0;
  for (const double gbps : settings.rates_gbps) {
    const auto rate = pacecar::Rate::from_bps(static_cast<uint64_t>(gbps * 1e9));
    code = std::max(code, pacecar::measure(settings, rate));
  }
  return code;
}
