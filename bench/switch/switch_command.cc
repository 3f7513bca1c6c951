// `pacecar switch`: an Ethernet switch in user space whose queues are the simulator's.
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/switch/live_switch.h"
#include "transport/base/invalid.h"
#include "transport/base/param_value.h"
#include "transport/base/return_if_error.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

using cli::Console;
using cli::steady_now;

constexpr const char* kFooter = R"(Frames pass the switch of 'pacecar sim' in real time.
Every port has a cable of its rate each way, a NIC queue before it, and an egress queue in the
switch; frames of the class --control-tc go first. Frames that their sender has joined (GSO) are
refused: 'ip link set DEV gso_max_segs 1' on the sender's side.

Examples, as root, in the namespace that holds the interfaces:
  pacecar switch --port veth0 --port veth1 --rate 200M
  pacecar switch --port veth0,10G --port veth1,500M --buffer 2M --ecn 100K,400K,0.2 --delay 10us
  pacecar switch --port veth0 --port veth1 --rate 500M --loss 0.01 --seconds 10 --json figures.json
It runs until --seconds are over or it is interrupted; SIGUSR1 prints the figures so far.
Exit codes: 0 success, 1 failed, 2 wrong usage.)";

struct SwitchFlags {
  std::vector<std::string> ports;  // as on the command line; ports_of() checks them
  Rate rate = Rate::from_gbps(1);  // of the ports that name none
  LiveSwitchConfig config{.switches = {.buffer_bytes = 1 << 20}, .delay = Duration::from_us(1)};
  double seconds = 0;   // 0: until interrupted
  double interval = 0;  // 0: none
  bool spin = false;
  std::string json_file;
  std::string queue_log;
};

// Reads a text with a unit as its raw value: bytes, nanoseconds or bits per second.
CLI::Validator quantity(ParamType type, uint64_t least, uint64_t most) {
  const auto convert = [=](std::string& text) {
    const ParamInfo info{
        .name = {}, .type = type, .doc = {}, .range = {least, most}, .choices = {}};
    const auto value = parse_param(info, text);
    if (!value) return fmt::format("'{}' cannot be read: write {}", text, describe_accepted(info));
    text = std::to_string(*value);
    return std::string();
  };
  return CLI::Validator(convert, "");
}
CLI::Validator bytes_from(Bytes least) { return quantity(ParamType::kBytes, least, 1ULL << 40); }
CLI::Validator time_from(Duration least) {
  constexpr Duration kMost = Duration::from_s(3600);
  return quantity(ParamType::kDuration, static_cast<uint64_t>(least.ns()),
                  static_cast<uint64_t>(kMost.ns()));
}
// At least 1 Mb/s: a smaller one has lost its unit.
CLI::Validator any_rate() { return quantity(ParamType::kRate, 1'000'000, 100'000'000'000'000); }

// What `form` reads in a part of a flag's text.
Result<uint64_t> value_of(std::string_view flag, const CLI::Validator& form, std::string text) {
  const std::string wrong = form(text);
  if (!wrong.empty()) return invalid("{}: {}", flag, wrong);
  return *to_number<uint64_t>(text);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  do parts.emplace_back(take_until(text, ','));
  while (!text.empty());
  return parts;
}

// Empty: nothing is marked. LOW: all frames are marked from there on; LOW,HIGH or
// LOW,HIGH,PROBABILITY: the probability rises from LOW to HIGH.
Result<void> read_ecn(const std::string& text, EcnConfig& ecn) {
  if (text.empty()) return {};
  const auto parts = split(text);
  if (parts.size() > 3) {
    return invalid("--ecn: '{}' has {} parts: write LOW or LOW,HIGH,PROBABILITY", text,
                   parts.size());
  }
  ecn.kind = parts.size() == 1 ? EcnConfig::Kind::kStep : EcnConfig::Kind::kRed;
  ASSIGN_OR_RETURN(ecn.low, value_of("--ecn", bytes_from(0), parts[0]));
  if (parts.size() > 1) {
    ASSIGN_OR_RETURN(ecn.high, value_of("--ecn", bytes_from(0), parts[1]));
  }
  if (parts.size() < 3) return {};
  const auto probability = to_number<double>(parts[2]);
  if (!probability) return invalid("--ecn: '{}' is no probability: write it as 0.2", parts[2]);
  ecn.max_probability = *probability;
  return {};
}

void add_model_flags(CLI::App& app, SwitchFlags& flags) {
  LiveSwitchConfig& config = flags.config;
  SwitchConfig& switches = config.switches;
  const auto add_time = [&app](const char* flag, Duration& time, Duration least, const char* doc) {
    const auto set = [&time](int64_t ns) { time = Duration::from_ns(ns); };
    app.add_option_function<int64_t>(flag, set, doc)->transform(time_from(least));
  };
  app.add_option_function<uint64_t>(
         "--rate", [&](uint64_t bps) { flags.rate = Rate::from_bps(bps); },
         "of the ports that name none, bits per second; default 1G")
      ->transform(any_rate());
  app.add_option("--buffer", switches.buffer_bytes,
                 "that all ports share; 0: only --queue bounds it; default 1M")
      ->transform(bytes_from(0));
  app.add_option("--queue", switches.queue_bytes,
                 "of one port's queue; 0: only the buffer bounds it")
      ->transform(bytes_from(0));
  app.add_option_function<std::string>(
      "--ecn",
      [&](const std::string& text) {
        const auto read = read_ecn(text, switches.ecn);
        if (!read) throw CLI::ParseError(read.error().message, 1);
      },
      "mark from LOW on, or by LOW,HIGH,PROBABILITY");
  app.add_flag("--pfc", switches.pfc.enabled,
               "pause senders instead of dropping (their NIC queues fill)");
  app.add_flag("--trim", switches.trimming, "cut Pacecar's data packets instead of dropping them");
  app.add_flag("--int", switches.telemetry, "stamp Pacecar's data packets with telemetry");
  add_time("--delay", config.delay, Duration(), "of each cable, each way; default 1us");
  app.add_option("--loss", config.loss, "probability that a frame is lost")
      ->check(CLI::Range(0., 1.));
  app.add_option("--nic-queue", config.nic_bytes, "in front of each sender's cable; default 4M")
      ->transform(bytes_from(65'536));  // holds the largest frame
  app.add_option_function<unsigned>(
         "--control-tc",
         [&](unsigned traffic_class) {
           config.control_dscp = static_cast<uint8_t>(traffic_class >> 2);
         },
         "IP traffic class that goes first; default 184")
      ->check(cli::whole_number(0, 255));
  add_time("--sample", config.sample, Duration::from_us(1),
           "time between two looks at the queues; default 100us");
  app.add_option("--seed", config.seed, "of marks and losses")
      ->check(cli::whole_number(0, INT64_MAX));
}

void add_flags(CLI::App& app, SwitchFlags& flags) {
  app.add_option("--port", flags.ports, "INTERFACE or INTERFACE,RATE; two or more")
      ->allow_extra_args(false);
  add_model_flags(app, flags);
  app.add_option("--seconds", flags.seconds, "how long; default: until interrupted")
      ->check(cli::positive_number(1e6));
  app.add_option("--interval", flags.interval, "print figures every so many seconds")
      ->check(cli::positive_number(1e6));
  app.add_flag("--spin", flags.spin, "never sleep: less late, at the cost of a core");
  cli::add_json_flag(app, flags.json_file, "write all figures at the end");
  app.add_option("--queue-log", flags.queue_log, "write every sample: seconds, port, bytes");
  app.footer(kFooter);
}

struct SwitchPort {
  std::string name;  // of its interface
  Rate rate;
};

// INTERFACE or INTERFACE,RATE.
Result<SwitchPort> port_of(const std::string& text, Rate usual) {
  const auto parts = split(text);
  if (parts[0].empty() || parts.size() > 2) {
    return invalid("--port: '{}' cannot be read: write INTERFACE or INTERFACE,RATE", text);
  }
  if (parts.size() == 1) return SwitchPort{parts[0], usual};
  ASSIGN_OR_RETURN(const auto bps, value_of("--port", any_rate(), parts[1]));
  return SwitchPort{parts[0], Rate::from_bps(bps)};
}

// Two or more. Errors: kInvalidArgument, naming the flag.
Result<std::vector<SwitchPort>> ports_of(const SwitchFlags& flags) {
  std::vector<SwitchPort> ports;
  for (const std::string& text : flags.ports) {
    ASSIGN_OR_RETURN(auto port, port_of(text, flags.rate));
    if (std::ranges::find(ports, port.name, &SwitchPort::name) != ports.end()) {
      return invalid("--port: '{}' is named twice: name each interface once", port.name);
    }
    ports.push_back(std::move(port));
  }
  if (ports.size() >= 2) return ports;
  return invalid("a switch joins ports: name two or more with --port, not {}", ports.size());
}

// Samples of idle queues wake nobody: they are taken this late at most.
constexpr Duration kLongestSleep = Duration::from_ms(10);
constexpr Duration kBetweenWarnings = Duration::from_s(1);

volatile std::sig_atomic_t figures_asked = 0;

// Warns of each port that receives frames which its user must make shorter; once per port.
void warn_of_long_frames(LiveSwitch& live, const Console& console, std::vector<bool>& warned) {
  warned.resize(live.ports());
  for (size_t i = 0; i < live.ports(); ++i) {
    FramePort& port = live.port(i);
    if (warned[i] || port.counters().too_long == 0) continue;
    warned[i] = true;
    console.warn(fmt::format(
        "port {0}: a frame is longer than {1} bytes: its sender joins packets (GSO); cut them "
        "with 'ip link set DEV gso_max_segs 1' on the sender's side of {0}",
        port.name(), port.frame_bytes()));
  }
}

void sleep_until(LiveSwitch& live, std::vector<pollfd>& sockets, Instant limit) {
  const Instant deadline = std::min(live.next_deadline(), limit);
  const Duration left = std::min(deadline - steady_now(), kLongestSleep);
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
  Instant next_warning = begin;
  std::vector<bool> warned;
  for (Instant now = begin; !cli::Interrupt::asked() && now < end; now = steady_now()) {
    const bool complete = live.poll(now);
    if (now >= interval_end) {
      interval_end = now + span(flags.interval);
      const std::string lines = report.end_interval(live.now());
      if (!console.quiet()) fmt::print("{}\n", lines);
      std::fflush(stdout);
    }
    if (now >= next_warning) {
      next_warning = now + kBetweenWarnings;
      warn_of_long_frames(live, console, warned);
    }
    if (std::exchange(figures_asked, 0) != 0) {
      report.end_interval(live.now());
      fmt::print("{}\n", report.summary());
      std::fflush(stdout);
    }
    if (complete && !flags.spin) sleep_until(live, sockets, std::min(end, interval_end));
  }
  report.end_interval(live.now());
  warn_of_long_frames(live, console, warned);
}

Result<void> run(const SwitchFlags& flags, const Console& console) {
  RETURN_IF_ERROR(cli::check_writable(flags.json_file));
  RETURN_IF_ERROR(cli::check_writable(flags.queue_log));
  ASSIGN_OR_RETURN(const auto named, ports_of(flags));
  std::vector<std::unique_ptr<FramePort>> ports;
  std::vector<Rate> rates;
  for (const auto& [name, rate] : named) {
    ASSIGN_OR_RETURN(auto port, open_packet_socket(name));
    ports.push_back(std::move(port));
    rates.push_back(rate);
  }
  // The figures are written whatever else comes.
  const cli::Interrupt interrupt(cli::Interrupt::Second::kIgnored);
  std::signal(SIGUSR1, [](int) { figures_asked = 1; });
  prctl(PR_SET_TIMERSLACK, 1);  // ns: the default of 50 us would make frames late
  const Instant begin = steady_now();
  ASSIGN_OR_RETURN(auto live, LiveSwitch::create(std::move(ports), rates, flags.config, begin));
  std::ofstream log;
  if (!flags.queue_log.empty()) {
    log.open(flags.queue_log);
    log << "time_s,port,queue_bytes\n";  // of the monotonic clock
    live->set_sampler([&](Instant time, size_t port, Bytes queue_bytes) {
      log << fmt::format("{:.6f},{},{}\n", (time - Instant()).seconds(), named[port].name,
                         queue_bytes);
    });
  }
  SwitchReport report(*live, begin);
  console.note(fmt::format("switch: {} ports are up", live->ports()));
  serve(*live, report, flags, console, begin);
  if (!console.quiet()) fmt::print("{}", report.summary());
  if (!flags.json_file.empty()) {
    RETURN_IF_ERROR(cli::write_json(flags.json_file, report.to_json()));
  }
  if (log.flush()) return {};
  return fail(ErrorCode::kSystem, "cannot write all of '{}': is the disk full?", flags.queue_log);
}

}  // namespace

int run_switch(int argc, char** argv) {
  SwitchFlags flags;
  CLI::App app("Forwards Ethernet frames between interfaces through the switch of 'pacecar sim'.",
               "pacecar switch");
  add_flags(app, flags);
  return cli::run_subcommand(app, argc, argv, {},
                             [&](const Console& console) { return run(flags, console); });
}

}  // namespace pacecar
