// `pacecar switch`: an Ethernet switch in user space whose queues are the simulator's.
#include <fmt/core.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/files.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "bench/switch/dpdk_frames.h"
#include "bench/switch/live_switch.h"
#include "bench/switch/packet_socket.h"
#include "bench/switch/switch_report.h"
#include "transport/base/param_value.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"
#include "transport/base/units.h"
#include "transport/io/dpdk/module.h"

namespace pacecar {
namespace {

// The flags of `pacecar switch` as a configuration. Pure, but for reading its arguments.

// As on the command line, not yet checked.
struct SwitchFlags {
  std::vector<std::string> ports;
  std::string rate = "1G";
  std::string buffer = "1M";
  std::string queue = "0";
  std::string ecn;
  bool ecn_at_dequeue = false;
  bool pfc = false;
  double pfc_alpha = PfcConfig().alpha;
  bool trim = false;
  bool telemetry = false;
  std::string delay = "1us";
  double loss = 0;
  std::string nic_queue = "4M";
  int control_tc = 184;
  std::string sample = "100us";
  uint64_t seed = 1;
  double seconds = 0;
  double interval = 0;
  bool spin = false;
  std::string json_file;
  std::string queue_log;
  bool quiet = false;
  bool no_color = false;
};

// What a port's name begins with that is a DPDK device.
inline constexpr std::string_view kDpdkPort = "dpdk:";

struct SwitchPlan {
  std::vector<std::string> interfaces;  // or "dpdk:DEVICE"
  std::vector<std::string> arguments;   // of the DPDK devices
  std::vector<Rate> rates;
  LiveSwitchConfig config;
};

constexpr const char* kFooter = R"(Frames pass the switch of 'pacecar sim' in real time.
Every port has a cable of its rate each way, a NIC queue before it, and an egress queue in the
switch; frames of the class --control-tc go first. Frames that their sender has joined (GSO) are
refused: 'ip link set DEV gso_max_segs 1' on the sender's side.

Examples, as root, in the namespace that holds the interfaces:
  pacecar switch --port veth0 --port veth1 --rate 200M
  pacecar switch --port veth0,10G --port veth1,500M --buffer 2M --ecn 100K,400K,0.2 --delay 10us
  pacecar switch --port veth0 --port veth1 --rate 500M --loss 0.01 --seconds 10 --json figures.json
and between processes that share memory (DPDK; the other ends have role=client):
  S=socket=$HOME/switch.sock,socket-abstract=no
  pacecar switch --rate 10G --port dpdk:net_memif0,id=0,$S --port dpdk:net_memif1,id=1,$S,1G
It runs until --seconds are over or it is interrupted; SIGUSR1 prints the figures so far.
Exit codes: 0 success, 1 failed, 2 wrong usage.)";

constexpr Bytes kLeastNicBytes = 65'536;

std::optional<uint64_t> parse(ParamType type, std::string_view text) {
  return parse_param({.name = {}, .type = type, .doc = {}, .range = {}, .choices = {}}, text);
}

Result<uint64_t> value_of(std::string_view flag, ParamType type, std::string_view text,
                          std::string_view example) {
  if (const auto value = parse(type, text)) return *value;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: '{}' cannot be read: write it as {}", flag, text, example));
}

Result<Rate> rate_of(std::string_view flag, std::string_view text) {
  ASSIGN_OR_RETURN(const auto bps,
                   value_of(flag, ParamType::kRate, text, "200M or 10G, in bits per second"));
  if (bps == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a cable of rate 0 carries nothing: choose 1 or more", flag));
  }
  return Rate::from_bps(bps);
}

Result<void> read_bytes(std::string_view flag, std::string_view text, Bytes& to) {
  ASSIGN_OR_RETURN(to, value_of(flag, ParamType::kBytes, text, "100K, 1M or plain bytes"));
  return {};
}

Result<void> read_time(std::string_view flag, std::string_view text, Duration& to) {
  ASSIGN_OR_RETURN(const auto value,
                   value_of(flag, ParamType::kDuration, text, "10us, 500ns or 1ms"));
  to = Duration::from_ns(static_cast<int64_t>(value));
  return {};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// LOW: a step; LOW,HIGH or LOW,HIGH,PROBABILITY: rising between the two.
Result<void> read_ecn(const std::string& text, EcnConfig& ecn) {
  if (text.empty()) return {};
  const auto parts = split(text);
  if (parts.size() > 3) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--ecn: '{}' has {} parts: write LOW or LOW,HIGH,PROBABILITY", text,
                            parts.size()));
  }
  ecn.kind = parts.size() == 1 ? EcnConfig::Kind::kStep : EcnConfig::Kind::kRed;
  RETURN_IF_ERROR(read_bytes("--ecn", parts[0], ecn.low));
  if (parts.size() > 1) {
    RETURN_IF_ERROR(read_bytes("--ecn", parts[1], ecn.high));
  }
  if (parts.size() > 2) {
    const auto probability = to_number<double>(parts[2]);
    if (!probability) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--ecn: '{}' is no probability: write it as 0.2", parts[2]));
    }
    ecn.max_probability = *probability;
  }
  return {};
}

// Removes the arguments of a DPDK device from the comma list's items.
std::string take_arguments(std::vector<std::string>& parts) {
  std::string arguments;
  std::erase_if(parts, [&](const std::string& part) {
    const bool argument = part.find('=') != std::string::npos;
    if (argument) arguments += (arguments.empty() ? "" : ",") + part;
    return argument;
  });
  return arguments;
}

Result<void> read_ports(const SwitchFlags& flags, SwitchPlan& plan) {
  const auto common = rate_of("--rate", flags.rate);
  if (!common) return tl::unexpected(common.error());
  for (const std::string& text : flags.ports) {
    auto parts = split(text);
    plan.arguments.push_back(parts[0].starts_with(kDpdkPort) ? take_arguments(parts) : "");
    ASSIGN_OR_RETURN(const auto rate, parts.size() == 2 ? rate_of("--port", parts[1]) : common);
    if (parts[0].empty() || parts.size() > 2) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--port: '{}' cannot be read: write INTERFACE or INTERFACE,RATE, or "
                              "dpdk:DEVICE,KEY=VALUE,...,RATE",
                              text));
    }
    if (std::ranges::find(plan.interfaces, parts[0]) != plan.interfaces.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--port: '{}' is named twice: name each interface once", parts[0]));
    }
    plan.interfaces.push_back(parts[0]);
    plan.rates.push_back(rate);
  }
  return {};
}

void add_switch_flags(CLI::App& app, SwitchFlags& flags) {
  app.add_option("--port", flags.ports,
                 "INTERFACE or INTERFACE,RATE, or a DPDK device: dpdk:DEVICE,KEY=VALUE,...,RATE; "
                 "two or more")
      ->allow_extra_args(false);
  app.add_option("--rate", flags.rate, "of the ports that name none, bits per second; default 1G");
  app.add_option("--buffer", flags.buffer,
                 "that all ports share; 0: only --queue bounds it; default 1M");
  app.add_option("--queue", flags.queue, "of one port's queue; 0: only the buffer bounds it");
  app.add_option("--ecn", flags.ecn, "mark from LOW on, or by LOW,HIGH,PROBABILITY");
  app.add_flag("--ecn-at-dequeue", flags.ecn_at_dequeue, "judge when a frame leaves its queue");
  app.add_flag("--pfc", flags.pfc, "pause senders instead of dropping (their NIC queues fill)");
  app.add_option("--pfc-alpha", flags.pfc_alpha, "threshold as a share of the free buffer");
  app.add_flag("--trim", flags.trim, "cut Pacecar's data packets instead of dropping them");
  app.add_flag("--int", flags.telemetry, "stamp Pacecar's data packets with telemetry");
  app.add_option("--delay", flags.delay, "of each cable, each way; default 1us");
  app.add_option("--loss", flags.loss, "probability that a frame is lost")
      ->check(CLI::Range(0., 1.));
  app.add_option("--nic-queue", flags.nic_queue, "in front of each sender's cable; default 4M");
  app.add_option("--control-tc", flags.control_tc, "IP traffic class that goes first; default 184")
      ->check(perf::whole_number(0, 255));
  app.add_option("--sample", flags.sample, "time between two looks at the queues; default 100us");
  app.add_option("--seed", flags.seed, "of marks and losses")
      ->check(perf::whole_number(0, INT64_MAX));
  app.add_option("--seconds", flags.seconds, "how long; default: until interrupted")
      ->check(perf::positive_number(1e6));
  app.add_option("--interval", flags.interval, "print figures every so many seconds")
      ->check(perf::positive_number(1e6));
  app.add_flag("--spin", flags.spin, "never sleep: less late, at the cost of a core");
  perf::add_json_flag(app, flags.json_file, "write all figures at the end");
  app.add_option("--queue-log", flags.queue_log, "write every sample: seconds, port, bytes");
  app.add_flag("--quiet", flags.quiet, "no figures on the terminal");
  app.add_flag("--no-color", flags.no_color, "no colours");
  app.footer(kFooter);
}

// Errors: kInvalidArgument, naming the flag.
Result<SwitchPlan> make_switch_plan(const SwitchFlags& flags) {
  SwitchPlan plan;
  SwitchConfig& switches = plan.config.switches;
  RETURN_IF_ERROR(read_ports(flags, plan));
  if (plan.interfaces.size() < 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a switch joins ports: name two or more with --port, not {}",
                            plan.interfaces.size()));
  }
  RETURN_IF_ERROR(read_bytes("--buffer", flags.buffer, switches.buffer_bytes));
  RETURN_IF_ERROR(read_bytes("--queue", flags.queue, switches.queue_bytes));
  RETURN_IF_ERROR(read_ecn(flags.ecn, switches.ecn));
  RETURN_IF_ERROR(read_bytes("--nic-queue", flags.nic_queue, plan.config.nic_bytes));
  RETURN_IF_ERROR(read_time("--delay", flags.delay, plan.config.delay));
  RETURN_IF_ERROR(read_time("--sample", flags.sample, plan.config.sample));
  if (plan.config.sample < Duration::from_us(1)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--sample: '{}' is too often: choose 1us or more", flags.sample));
  }
  if (plan.config.nic_bytes < kLeastNicBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--nic-queue: '{}' does not hold the largest frame: choose {} or more",
                            flags.nic_queue, kLeastNicBytes));
  }
  if (flags.ecn_at_dequeue) switches.ecn.when = EcnConfig::When::kDequeue;
  switches.pfc.enabled = flags.pfc;
  switches.pfc.alpha = flags.pfc_alpha;
  switches.trimming = flags.trim;
  switches.telemetry = flags.telemetry;
  plan.config.loss = flags.loss;
  plan.config.control_dscp = static_cast<uint8_t>(flags.control_tc >> 2);
  plan.config.seed = flags.seed;
  return plan;
}

using perf::Console;
using perf::steady_now;

// So that what is not urgent (samples of idle queues) does not pile up.
constexpr Duration kLongestSleep = Duration::from_ms(10);
// For a port without a descriptor to wait for.
constexpr Duration kPolledSleep = Duration::from_us(20);
constexpr Duration kBetweenLooks = Duration::from_s(1);  // for what a user has to change

volatile std::sig_atomic_t stop_asked = 0;
volatile std::sig_atomic_t figures_asked = 0;

void install_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = [](int) { figures_asked = 1; };
  sigaction(SIGUSR1, &action, nullptr);
}

// Every sample as a line: seconds (of the monotonic clock), port, bytes.
class QueueLog final : public LiveSwitch::Sampler {
 public:
  static Result<std::unique_ptr<QueueLog>> open(const std::string& path,
                                                const std::vector<std::string>& names) {
    std::ofstream file(path);
    if (!file) {
      return fail(ErrorCode::kSystem,
                  fmt::format("cannot write '{}': check its folder and its permissions", path));
    }
    file << "time_s,port,queue_bytes\n";
    return std::unique_ptr<QueueLog>(new QueueLog(std::move(file), names));
  }

  void on_sample(Instant time, size_t port, Bytes queue_bytes) override {
    file_ << fmt::format("{:.6f},{},{}\n", static_cast<double>(time.ns()) * 1e-9, names_[port],
                         queue_bytes);
  }

 private:
  QueueLog(std::ofstream file, std::vector<std::string> names)
      : file_(std::move(file)), names_(std::move(names)) {}

  std::ofstream file_;
  std::vector<std::string> names_;
};

// Says once of each port what its user has to change.
class Complaints {
 public:
  explicit Complaints(size_t ports) : reported_(ports) {}

  void look(LiveSwitch& live, const Console& console) {
    for (size_t i = 0; i < live.ports(); ++i) {
      FramePort& port = live.port(i);
      if (reported_[i] || port.counters().too_long == 0) continue;
      reported_[i] = true;
      console.warn(fmt::format(
          "port {0}: a frame is longer than {1} bytes: its sender joins packets (GSO); cut them "
          "with 'ip link set DEV gso_max_segs 1' on the sender's side of {0}",
          port.name(), port.frame_bytes()));
    }
  }

 private:
  std::vector<bool> reported_;
};

void sleep_until(LiveSwitch& live, std::vector<pollfd>& sockets, Instant limit) {
  const Instant deadline = std::min(live.next_deadline(), limit);
  const bool polled = std::ranges::any_of(sockets, [](const pollfd& one) { return one.fd < 0; });
  const Duration left = std::min(deadline - steady_now(), polled ? kPolledSleep : kLongestSleep);
  if (left.ns() <= 0) return;
  const timespec time{.tv_sec = 0, .tv_nsec = left.ns()};
  ppoll(sockets.data(), sockets.size(), &time, nullptr);
}

void serve(LiveSwitch& live, SwitchReport& report, const SwitchFlags& flags, const Console& console,
           Instant begin) {
  std::vector<pollfd> sockets;
  for (size_t i = 0; i < live.ports(); ++i) {
    sockets.push_back({.fd = live.port(i).wait_fd(), .events = POLLIN, .revents = 0});
  }
  const auto span = [](double seconds) {
    return Duration::from_ns(static_cast<int64_t>((seconds > 0 ? seconds : 1e9) * 1e9));
  };
  const Instant end = begin + span(flags.seconds);
  Instant interval_end = begin + span(flags.interval);
  Instant next_look = begin;
  Complaints complaints(live.ports());
  for (Instant now = begin; stop_asked == 0 && now < end; now = steady_now()) {
    const bool complete = live.poll(now);
    if (now >= interval_end) {
      interval_end = now + span(flags.interval);
      const std::string lines = report.end_interval(live.now());
      if (!flags.quiet) fmt::print("{}\n", lines);
      std::fflush(stdout);
    }
    if (now >= next_look) {
      next_look = now + kBetweenLooks;
      complaints.look(live, console);
    }
    if (std::exchange(figures_asked, 0) != 0) {
      report.end_interval(live.now());
      fmt::print("{}\n", report.summary());
      std::fflush(stdout);
    }
    if (complete && !flags.spin) sleep_until(live, sockets, std::min(end, interval_end));
  }
  report.end_interval(live.now());
  complaints.look(live, console);
}

Result<std::unique_ptr<FramePort>> open_dpdk(const std::string& device,
                                             const std::string& arguments) {
  ASSIGN_OR_RETURN(const auto open,
                   load_dpdk_function<decltype(open_dpdk_frames)>(kDpdkFramesModule));
  return (open)(device, arguments, {});
}

Result<void> run(const SwitchFlags& flags, const Console& console) {
  RETURN_IF_ERROR(perf::check_writable(flags.json_file));
  ASSIGN_OR_RETURN(auto plan, make_switch_plan(flags));
  std::vector<std::unique_ptr<FramePort>> ports;
  for (size_t i = 0; i < plan.interfaces.size(); ++i) {
    const std::string& name = plan.interfaces[i];
    ASSIGN_OR_RETURN(auto port, name.starts_with(kDpdkPort)
                                    ? open_dpdk(name.substr(kDpdkPort.size()), plan.arguments[i])
                                    : open_packet_socket(name));
    ports.push_back(std::move(port));
  }
  install_signals();
  prctl(PR_SET_TIMERSLACK, 1);  // ns: the default of 50 us would make frames late
  const Instant begin = steady_now();
  ASSIGN_OR_RETURN(auto live, LiveSwitch::create(std::move(ports), plan.rates, plan.config, begin));
  std::unique_ptr<QueueLog> log;
  if (!flags.queue_log.empty()) {
    ASSIGN_OR_RETURN(log, QueueLog::open(flags.queue_log, plan.interfaces));
    live->set_sampler(log.get());
  }
  SwitchReport report(*live, begin);
  console.note(fmt::format("switch: {} ports are up", live->ports()));
  serve(*live, report, flags, console, begin);
  if (!flags.quiet) fmt::print("{}", report.summary());
  if (flags.json_file.empty()) return {};
  return perf::write_text(flags.json_file, report.to_json().dump(1) + "\n");
}

}  // namespace

int run_switch(int argc, char** argv) {
  SwitchFlags flags;
  CLI::App app("Forwards Ethernet frames between interfaces through the switch of 'pacecar sim'.",
               "pacecar switch");
  add_switch_flags(app, flags);
  return perf::run_subcommand(app, argc, argv, {.quiet = &flags.quiet, .no_color = &flags.no_color},
                              [&](const Console& console) { return run(flags, console); });
}

}  // namespace pacecar
