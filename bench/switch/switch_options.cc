#include "bench/switch/switch_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/perf/command_line.h"
#include "transport/base/invalid.h"
#include "transport/base/param_value.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

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

// Bytes, nanoseconds or bits per second.
Result<uint64_t> value_of(std::string_view flag, ParamType type, std::string_view text) {
  const ParamInfo info{.name = {}, .type = type, .doc = {}, .range = {}, .choices = {}};
  if (const auto value = parse_param(info, text)) return *value;
  const char* example = type == ParamType::kBytes  ? "100K, 1M or plain bytes"
                        : type == ParamType::kRate ? "200M or 10G, in bits per second"
                                                   : "10us, 500ns or 1ms";
  return invalid("{}: '{}' cannot be read: write it as {}", flag, text, example);
}

Result<Bytes> bytes_of(std::string_view flag, std::string_view text) {
  return value_of(flag, ParamType::kBytes, text);
}

Result<Duration> time_of(std::string_view flag, std::string_view text) {
  return value_of(flag, ParamType::kDuration, text).map([](uint64_t ns) {
    return Duration::from_ns(static_cast<int64_t>(ns));
  });
}

Result<Rate> rate_of(std::string_view flag, std::string_view text) {
  ASSIGN_OR_RETURN(const auto bps, value_of(flag, ParamType::kRate, text));
  if (bps == 0) return invalid("{}: a cable of rate 0 carries nothing: choose 1 or more", flag);
  return Rate::from_bps(bps);
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

// LOW: all frames are marked from there on; LOW,HIGH or LOW,HIGH,PROBABILITY: the probability rises
// from LOW to HIGH.
Result<void> read_ecn(const std::string& text, EcnConfig& ecn) {
  if (text.empty()) return {};
  const auto parts = split(text);
  if (parts.size() > 3) {
    return invalid("--ecn: '{}' has {} parts: write LOW or LOW,HIGH,PROBABILITY", text,
                   parts.size());
  }
  ecn.kind = parts.size() == 1 ? EcnConfig::Kind::kStep : EcnConfig::Kind::kRed;
  ASSIGN_OR_RETURN(ecn.low, bytes_of("--ecn", parts[0]));
  if (parts.size() > 1) {
    ASSIGN_OR_RETURN(ecn.high, bytes_of("--ecn", parts[1]));
  }
  if (parts.size() > 2) {
    const auto probability = to_number<double>(parts[2]);
    if (!probability) return invalid("--ecn: '{}' is no probability: write it as 0.2", parts[2]);
    ecn.max_probability = *probability;
  }
  return {};
}

// Removes the arguments of a DPDK device, KEY=VALUE, from the parts; returns them as one list.
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
      return invalid(
          "--port: '{}' cannot be read: write INTERFACE or INTERFACE,RATE, or "
          "dpdk:DEVICE,KEY=VALUE,...,RATE",
          text);
    }
    if (std::ranges::find(plan.interfaces, parts[0]) != plan.interfaces.end()) {
      return invalid("--port: '{}' is named twice: name each interface once", parts[0]);
    }
    plan.interfaces.push_back(parts[0]);
    plan.rates.push_back(rate);
  }
  return {};
}

}  // namespace

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
  app.add_flag("--pfc", flags.config.switches.pfc.enabled,
               "pause senders instead of dropping (their NIC queues fill)");
  app.add_option("--pfc-alpha", flags.config.switches.pfc.alpha,
                 "threshold as a share of the free buffer");
  app.add_flag("--trim", flags.config.switches.trimming,
               "cut Pacecar's data packets instead of dropping them");
  app.add_flag("--int", flags.config.switches.telemetry,
               "stamp Pacecar's data packets with telemetry");
  app.add_option("--delay", flags.delay, "of each cable, each way; default 1us");
  app.add_option("--loss", flags.config.loss, "probability that a frame is lost")
      ->check(CLI::Range(0., 1.));
  app.add_option("--nic-queue", flags.nic_queue, "in front of each sender's cable; default 4M");
  app.add_option("--control-tc", flags.control_tc, "IP traffic class that goes first; default 184")
      ->check(perf::whole_number(0, 255));
  app.add_option("--sample", flags.sample, "time between two looks at the queues; default 100us");
  app.add_option("--seed", flags.config.seed, "of marks and losses")
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

Result<SwitchPlan> make_switch_plan(const SwitchFlags& flags) {
  SwitchPlan plan{.config = flags.config};
  LiveSwitchConfig& config = plan.config;
  SwitchConfig& switches = config.switches;
  RETURN_IF_ERROR(read_ports(flags, plan));
  if (plan.interfaces.size() < 2) {
    return invalid("a switch joins ports: name two or more with --port, not {}",
                   plan.interfaces.size());
  }
  ASSIGN_OR_RETURN(switches.buffer_bytes, bytes_of("--buffer", flags.buffer));
  ASSIGN_OR_RETURN(switches.queue_bytes, bytes_of("--queue", flags.queue));
  RETURN_IF_ERROR(read_ecn(flags.ecn, switches.ecn));
  if (flags.ecn_at_dequeue) switches.ecn.when = EcnConfig::When::kDequeue;
  ASSIGN_OR_RETURN(config.delay, time_of("--delay", flags.delay));
  config.control_dscp = static_cast<uint8_t>(flags.control_tc >> 2);
  ASSIGN_OR_RETURN(config.sample, time_of("--sample", flags.sample));
  if (config.sample < Duration::from_us(1)) {
    return invalid("--sample: '{}' is too often: choose 1us or more", flags.sample);
  }
  ASSIGN_OR_RETURN(config.nic_bytes, bytes_of("--nic-queue", flags.nic_queue));
  if (config.nic_bytes < kLeastNicBytes) {
    return invalid("--nic-queue: '{}' does not hold the largest frame: choose {} or more",
                   flags.nic_queue, kLeastNicBytes);
  }
  return plan;
}

}  // namespace pacecar
