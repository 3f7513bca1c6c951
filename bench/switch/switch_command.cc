// `pacecar switch`: an Ethernet switch in user space whose queues are the simulator's.
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/files.h"
#include "bench/perf/interrupt.h"
#include "bench/perf/subcommands.h"
#include "bench/switch/live_switch.h"
#include "bench/switch/switch_options.h"
#include "transport/base/return_if_error.h"
#include "transport/io/dpdk/module.h"

namespace pacecar {
namespace {

using perf::Console;
using perf::steady_now;

// Samples of idle queues wake nobody: they are taken this late at most.
constexpr Duration kLongestSleep = Duration::from_ms(10);
constexpr Duration kPolledSleep = Duration::from_us(20);  // with a port that must be polled
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
  Instant next_warning = begin;
  std::vector<bool> warned;
  for (Instant now = begin; !perf::Interrupt::asked() && now < end; now = steady_now()) {
    const bool complete = live.poll(now);
    if (now >= interval_end) {
      interval_end = now + span(flags.interval);
      const std::string lines = report.end_interval(live.now());
      if (!flags.quiet) fmt::print("{}\n", lines);
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

Result<std::unique_ptr<FramePort>> open_dpdk(const std::string& device,
                                             const std::string& arguments) {
  ASSIGN_OR_RETURN(const auto open,
                   load_dpdk_function<decltype(open_dpdk_frames)>(kDpdkFramesModule));
  return (open)(device, arguments, {});
}

Result<void> run(const SwitchFlags& flags, const Console& console) {
  RETURN_IF_ERROR(perf::check_writable(flags.json_file));
  RETURN_IF_ERROR(perf::check_writable(flags.queue_log));
  ASSIGN_OR_RETURN(const auto named, make_switch_ports(flags));
  std::vector<std::unique_ptr<FramePort>> ports;
  std::vector<Rate> rates;
  for (const auto& [name, arguments, rate] : named) {
    ASSIGN_OR_RETURN(auto port, name.starts_with(kDpdkPort)
                                    ? open_dpdk(name.substr(kDpdkPort.size()), arguments)
                                    : open_packet_socket(name));
    ports.push_back(std::move(port));
    rates.push_back(rate);
  }
  // The figures are written whatever else comes.
  const perf::Interrupt interrupt(perf::Interrupt::Second::kIgnored);
  std::signal(SIGUSR1, [](int) { figures_asked = 1; });
  prctl(PR_SET_TIMERSLACK, 1);  // ns: the default of 50 us would make frames late
  const Instant begin = steady_now();
  ASSIGN_OR_RETURN(auto live, LiveSwitch::create(std::move(ports), rates, flags.config, begin));
  std::ofstream log;
  if (!flags.queue_log.empty()) {
    log.open(flags.queue_log);
    log << "time_s,port,queue_bytes\n";  // of the monotonic clock
    live->set_sampler([&](Instant time, size_t port, Bytes queue_bytes) {
      log << fmt::format("{:.6f},{},{}\n", static_cast<double>(time.ns()) * 1e-9, named[port].name,
                         queue_bytes);
    });
  }
  SwitchReport report(*live, begin);
  console.note(fmt::format("switch: {} ports are up", live->ports()));
  serve(*live, report, flags, console, begin);
  if (!flags.quiet) fmt::print("{}", report.summary());
  if (flags.json_file.empty()) return {};
  return perf::write_json(flags.json_file, report.to_json());
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
