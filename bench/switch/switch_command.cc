// `pacecar switch`: an Ethernet switch in user space whose queues are the simulator's.
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
#include <string>
#include <utility>
#include <vector>

#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/files.h"
#include "bench/perf/interrupt.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "bench/switch/frame_port.h"
#include "bench/switch/live_switch.h"
#include "bench/switch/switch_options.h"
#include "transport/base/histogram.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"
#include "transport/base/units.h"
#include "transport/io/dpdk/module.h"

namespace pacecar {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

double mbps(Bytes bytes, Duration time) {
  return time.ns() > 0 ? static_cast<double>(bytes) * 8e-6 / time.seconds() : 0;
}

struct Figure {
  const char* key;
  uint64_t (*value)(const PortCounts& counts);
};

constexpr Figure kFigures[] = {
    {"received_frames", [](const PortCounts& counts) { return counts.port.received_frames; }},
    // On the cable to the port, with Ethernet's overhead.
    {"sent_frames", [](const PortCounts& counts) { return counts.egress.sent_packets; }},
    {"sent_bytes", [](const PortCounts& counts) { return counts.egress.sent_bytes; }},
    {"marked", [](const PortCounts& counts) { return counts.egress.marked; }},
    {"trimmed", [](const PortCounts& counts) { return counts.egress.trimmed; }},
    {"dropped", [](const PortCounts& counts) { return counts.egress.dropped; }},
    {"nic_dropped", [](const PortCounts& counts) { return counts.nic_dropped; }},
    {"missed", [](const PortCounts& counts) { return counts.port.missed; }},
    {"too_long", [](const PortCounts& counts) { return counts.port.too_long; }},
    {"refused", [](const PortCounts& counts) { return counts.port.refused; }},
};

Json queue_json(const Histogram& samples, Bytes now, Bytes most) {
  return {{"now_bytes", now},
          {"p50_bytes", samples.value_at_percentile(50)},
          {"p99_bytes", samples.value_at_percentile(99)},
          {"max_bytes", most},
          {"samples", samples.count()}};
}

// What happened at a port between two looks at it, `time` apart.
Json port_json(const std::string& name, const PortCounts& before, const PortCounts& after,
               Duration time, Json queue) {
  Json figures = {{"name", name},
                  {"paused_us", (after.paused - before.paused).us()},
                  {"queue", std::move(queue)}};
  for (const auto& [key, value] : kFigures) figures[key] = value(after) - value(before);
  figures["sent_mbps"] = mbps(figures["sent_bytes"].get<Bytes>(), time);
  return figures;
}

std::string port_line(const Json& port) {
  const auto count = [](const Json& figures, const char* key) {
    return figures[key].get<uint64_t>();
  };
  const Json& queue = port["queue"];
  return fmt::format("{:<12} {:>9} {:>9.1f} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}\n",
                     port["name"].get<std::string>(), count(port, "sent_frames"),
                     port["sent_mbps"].get<double>(), count(port, "marked"), count(port, "trimmed"),
                     count(port, "dropped"), count(port, "nic_dropped") + count(port, "missed"),
                     count(queue, "now_bytes"), count(queue, "p50_bytes"),
                     count(queue, "p99_bytes"), count(queue, "max_bytes"));
}

std::string heading() {
  return fmt::format("{:<12} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}\n", "to",
                     "frames", "Mb/s", "marked", "trimmed", "dropped", "lost in", "queue B", "p50",
                     "p99", "max");
}

Json late_json(const Histogram& late) {
  return {{"p50_ns", late.value_at_percentile(50)},
          {"p99_ns", late.value_at_percentile(99)},
          {"max_ns", late.max()},
          {"frames", late.count()}};
}

std::string late_text(const Histogram& late) {
  const Json ns = late_json(late);
  return fmt::format("p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us",
                     ns["p50_ns"].get<double>() * 1e-3, ns["p99_ns"].get<double>() * 1e-3,
                     ns["max_ns"].get<double>() * 1e-3);
}

// The figures of a live switch, of each interval and of the whole time, as text and as JSON.
class SwitchReport {
 public:
  SwitchReport(LiveSwitch& live, Instant begin);

  // Ends the interval that began when the last one ended. Returns its lines, one per port.
  std::string end_interval(Instant now);
  // Of the whole time, up to the last end_interval().
  std::string summary() const;
  nlohmann::json to_json() const;

 private:
  struct Port {
    std::string name;
    PortCounts last;        // since the begin, without samples
    Histogram queue_bytes;  // of the whole time
    Bytes queue_max_bytes = 0;
  };

  nlohmann::json ports_json() const;  // of the whole time

  LiveSwitch& live_;
  Instant begin_;
  Instant end_;
  std::vector<Port> ports_;
  std::vector<nlohmann::json> intervals_;
};

SwitchReport::SwitchReport(LiveSwitch& live, Instant begin)
    : live_(live), begin_(begin), end_(begin), ports_(live.ports()) {
  for (size_t i = 0; i < ports_.size(); ++i) ports_[i].name = live.port(i).name();
}

std::string SwitchReport::end_interval(Instant now) {
  const Duration time = now - end_;
  Json ports = Json::array();
  std::string text = heading();
  for (size_t i = 0; i < ports_.size(); ++i) {
    Port& port = ports_[i];
    PortCounts counts = live_.take_counts(i);
    port.queue_bytes.merge(counts.queue_bytes);
    port.queue_max_bytes = std::max(port.queue_max_bytes, counts.egress.queue_max_bytes);
    ports.push_back(port_json(
        port.name, port.last, counts, time,
        queue_json(counts.queue_bytes, counts.egress.queue_bytes, counts.egress.queue_max_bytes)));
    text += port_line(ports.back());
    counts.queue_bytes = {};
    port.last = std::move(counts);
  }
  live_.begin_counts();
  intervals_.push_back(
      {{"begin_s", end_.ns() * 1e-9}, {"end_s", now.ns() * 1e-9}, {"ports", std::move(ports)}});
  end_ = now;
  return text;
}

Json SwitchReport::ports_json() const {
  Json ports = Json::array();
  for (const Port& port : ports_) {
    ports.push_back(port_json(
        port.name, {}, port.last, end_ - begin_,
        queue_json(port.queue_bytes, port.last.egress.queue_bytes, port.queue_max_bytes)));
  }
  return ports;
}

std::string SwitchReport::summary() const {
  std::string text = heading();
  for (const Json& port : ports_json()) text += port_line(port);
  text += fmt::format("frames left late: {}\n", late_text(live_.lateness()));
  return text + fmt::format("frames entered late: {}\n", late_text(live_.entry_lateness()));
}

Json SwitchReport::to_json() const {
  const FabricCounters counters = live_.counters();
  return {{"schema_version", kSchemaVersion},
          {"begin_s", begin_.ns() * 1e-9},
          {"end_s", end_.ns() * 1e-9},
          {"lost_at_random", counters.dropped_for(FabricDrop::kLoss)},
          {"pauses", counters.pauses},
          {"left_late", late_json(live_.lateness())},
          {"entered_late", late_json(live_.entry_lateness())},
          {"ports", ports_json()},
          {"intervals", intervals_}};
}

// --- the loop ---

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
  const perf::Interrupt interrupt;
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
