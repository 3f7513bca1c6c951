#include "bench/switch/switch_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <utility>

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

// What the text of a flag means: bytes, nanoseconds or bits per second.
struct Quantity {
  ParamType type;
  const char* example;
  uint64_t least = 0;
  const char* outside = "";  // the sentence's end for less than `least` or more than `most`
  uint64_t most = UINT64_MAX;
};
constexpr Quantity kBytes{ParamType::kBytes, "100K, 1M or plain bytes"};
constexpr Quantity kTime{ParamType::kDuration, "10us, 500ns or 1ms"};
constexpr Quantity kSampleTime{kTime.type, kTime.example, 1000,
                               "is too often or too seldom: choose 1us to 3600s",
                               3'600'000'000'000};
constexpr Quantity kNicBytes{kBytes.type, kBytes.example, 65'536,
                             "does not hold the largest frame: choose 65536 or more"};
constexpr Quantity kRate{ParamType::kRate, "200M or 10G, in bits per second", 1,
                         "is too slow: a cable of rate 0 carries nothing: choose 1 or more"};

Result<uint64_t> value_of(std::string_view flag, const Quantity& quantity, std::string_view text) {
  const ParamInfo info{.name = {}, .type = quantity.type, .doc = {}, .range = {}, .choices = {}};
  const auto value = parse_param(info, text);
  if (!value) {
    return invalid("{}: '{}' cannot be read: write it as {}", flag, text, quantity.example);
  }
  if (*value < quantity.least || *value > quantity.most) {
    return invalid("{}: '{}' {}", flag, text, quantity.outside);
  }
  return *value;
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
  ASSIGN_OR_RETURN(ecn.low, value_of("--ecn", kBytes, parts[0]));
  if (parts.size() > 1) {
    ASSIGN_OR_RETURN(ecn.high, value_of("--ecn", kBytes, parts[1]));
  }
  if (parts.size() < 3) return {};
  const auto probability = to_number<double>(parts[2]);
  if (!probability) return invalid("--ecn: '{}' is no probability: write it as 0.2", parts[2]);
  ecn.max_probability = *probability;
  return {};
}

// Removes the arguments of a DPDK device, KEY=VALUE, from the parts behind its name; returns them
// as one list.
std::string take_arguments(std::vector<std::string>& parts) {
  std::string arguments;
  const auto rest = std::remove_if(parts.begin() + 1, parts.end(), [&](const std::string& part) {
    const bool argument = part.find('=') != std::string::npos;
    if (argument) arguments += (arguments.empty() ? "" : ",") + part;
    return argument;
  });
  parts.erase(rest, parts.end());
  return arguments;
}

// Adds a flag whose text `read` takes.
template <typename Read>
void add_text(CLI::App& app, const std::string& flag, Read read, const std::string& doc) {
  app.add_option_function<std::string>(
      flag,
      [read](const std::string& text) {
        if (const auto done = read(text); !done) throw CLI::ParseError(done.error().message, 1);
      },
      doc);
}

template <typename Set>
void add_quantity(CLI::App& app, const std::string& flag, const Quantity& quantity, Set set,
                  const std::string& doc) {
  add_text(
      app, flag, [=](const std::string& text) { return value_of(flag, quantity, text).map(set); },
      doc);
}

}  // namespace

void add_switch_flags(CLI::App& app, SwitchFlags& flags) {
  app.add_option("--port", flags.ports,
                 "INTERFACE or INTERFACE,RATE, or a DPDK device: dpdk:DEVICE,KEY=VALUE,...,RATE; "
                 "two or more")
      ->allow_extra_args(false);
  LiveSwitchConfig& config = flags.config;
  SwitchConfig& switches = config.switches;
  const auto bytes_of = [](Bytes& bytes) { return [&](uint64_t value) { bytes = value; }; };
  const auto time_of = [](Duration& time) {
    return [&](uint64_t ns) { time = Duration::from_ns(static_cast<int64_t>(ns)); };
  };
  add_quantity(
      app, "--rate", kRate, [&](uint64_t bps) { flags.rate = Rate::from_bps(bps); },
      "of the ports that name none, bits per second; default 1G");
  add_quantity(app, "--buffer", kBytes, bytes_of(switches.buffer_bytes),
               "that all ports share; 0: only --queue bounds it; default 1M");
  add_quantity(app, "--queue", kBytes, bytes_of(switches.queue_bytes),
               "of one port's queue; 0: only the buffer bounds it");
  add_text(
      app, "--ecn", [&](const std::string& text) { return read_ecn(text, switches.ecn); },
      "mark from LOW on, or by LOW,HIGH,PROBABILITY");
  app.add_flag_callback(
      "--ecn-at-dequeue", [&] { switches.ecn.when = EcnConfig::When::kDequeue; },
      "judge when a frame leaves its queue");
  app.add_flag("--pfc", switches.pfc.enabled,
               "pause senders instead of dropping (their NIC queues fill)");
  app.add_option("--pfc-alpha", switches.pfc.alpha, "threshold as a share of the free buffer");
  app.add_flag("--trim", switches.trimming, "cut Pacecar's data packets instead of dropping them");
  app.add_flag("--int", switches.telemetry, "stamp Pacecar's data packets with telemetry");
  add_quantity(app, "--delay", kTime, time_of(config.delay),
               "of each cable, each way; default 1us");
  app.add_option("--loss", config.loss, "probability that a frame is lost")
      ->check(CLI::Range(0., 1.));
  add_quantity(app, "--nic-queue", kNicBytes, bytes_of(config.nic_bytes),
               "in front of each sender's cable; default 4M");
  app.add_option_function<unsigned>(
         "--control-tc",
         [&](unsigned traffic_class) {
           config.control_dscp = static_cast<uint8_t>(traffic_class >> 2);
         },
         "IP traffic class that goes first; default 184")
      ->check(perf::whole_number(0, 255));
  add_quantity(app, "--sample", kSampleTime, time_of(config.sample),
               "time between two looks at the queues; default 100us");
  app.add_option("--seed", config.seed, "of marks and losses")
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

Result<std::vector<SwitchPort>> make_switch_ports(const SwitchFlags& flags) {
  std::vector<SwitchPort> ports;
  for (const std::string& text : flags.ports) {
    auto parts = split(text);
    SwitchPort port{.name = parts[0], .arguments = "", .rate = flags.rate};
    if (port.name.starts_with(kDpdkPort)) port.arguments = take_arguments(parts);
    if (parts[0].empty() || parts.size() > 2) {
      return invalid(
          "--port: '{}' cannot be read: write INTERFACE or INTERFACE,RATE, or "
          "dpdk:DEVICE,KEY=VALUE,...,RATE",
          text);
    }
    if (parts.size() == 2) {
      ASSIGN_OR_RETURN(const auto bps, value_of("--port", kRate, parts[1]));
      port.rate = Rate::from_bps(bps);
    }
    if (std::ranges::find(ports, port.name, &SwitchPort::name) != ports.end()) {
      return invalid("--port: '{}' is named twice: name each interface once", port.name);
    }
    ports.push_back(std::move(port));
  }
  if (ports.size() >= 2) return ports;
  return invalid("a switch joins ports: name two or more with --port, not {}", ports.size());
}

}  // namespace pacecar
