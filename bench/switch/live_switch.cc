#include "bench/switch/live_switch.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/return_if_error.h"
#include "transport/io/frame.h"
#include "transport/wire/telemetry_tail.h"

namespace pacecar {
namespace {

// Preamble, FCS and gap.
constexpr Bytes kEthernetOverhead = 8 + 4 + 12;
// A full table learns nothing new, and frames to addresses that it lacks go to all ports.
constexpr size_t kMaxAddresses = 4096;
constexpr size_t kMaxFrames = 1 << 17;    // in the model at once, in all queues together
constexpr Bytes kInboxBytes = 256 << 20;  // until the port sends them, which is at once
// Ethernet, IPv4, UDP and Pacecar's header: what is left of a trimmed frame.
constexpr Bytes kTrimmedBytes = kEthernetBytes + 20 + 8 + 40 + kEthernetOverhead;
// Marking and trimming change no byte of a frame after these: they hold all headers up to UDP's,
// and all of a trimmed frame.
constexpr size_t kHeadBytes = 128;
constexpr uint32_t kSample = ~0U;  // of on_event; else the number of a port

// The bytes of telemetry to append to a frame; 0: none, or no room.
size_t tail_bytes(const RxPacket& packet, const FrameHeaders& headers, Bytes longest) {
  if (packet.telemetry.empty() || packet.trimmed) return 0;
  const size_t tail = wire::telemetry_tail_bytes(packet.telemetry.size());
  const bool ours = kept_when_trimmed(packet.bytes, headers) > 0;
  return ours && headers.end + tail <= longest ? tail : 0;
}

FabricConfig fabric_config(const LiveSwitchConfig& config, Bytes frame_bytes) {
  FabricConfig fabric;
  fabric.switches = config.switches;
  fabric.switches.trimmed_bytes = kTrimmedBytes;
  fabric.hosts.data_queue_bytes = config.nic_bytes;
  fabric.hosts.control_queue_bytes = config.nic_bytes;
  fabric.hosts.inbox_bytes = kInboxBytes;
  fabric.hosts.datagram_bytes = frame_bytes;
  fabric.hosts.overhead_bytes = kEthernetOverhead;
  fabric.payload = PayloadMode::kBytes;
  fabric.packets = kMaxFrames;
  return fabric;
}

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

double mbps(Bytes bytes, Duration time) {
  return time.ns() > 0 ? static_cast<double>(bytes) * 8e-6 / time.seconds() : 0;
}

// Of the cable to the port with Ethernet's overhead.
Json counts_json(const PortCounts& counts) {
  return {{"received_frames", counts.port.received_frames},
          {"sent_frames", counts.egress.sent_packets},
          {"sent_bytes", counts.egress.sent_bytes},
          {"marked", counts.egress.marked},
          {"trimmed", counts.egress.trimmed},
          {"dropped", counts.egress.dropped},
          {"nic_dropped", counts.nic_dropped},
          {"missed", counts.port.missed},
          {"too_long", counts.port.too_long},
          {"refused", counts.port.refused}};
}

Json queue_json(const Histogram& samples, Bytes now, Bytes most) {
  return {{"now_bytes", now},
          {"p50_bytes", samples.value_at_percentile(50)},
          {"p99_bytes", samples.value_at_percentile(99)},
          {"max_bytes", most},
          {"samples", samples.count()}};
}

// What happened at a port between two counts, `time` apart.
Json port_json(const std::string& name, const PortCounts& before, const PortCounts& after,
               Duration time, Json queue) {
  Json figures = counts_json(after);
  const Json earlier = counts_json(before);
  for (const auto& [key, value] : earlier.items()) {
    figures[key] = figures[key].get<uint64_t>() - value.get<uint64_t>();
  }
  figures["name"] = name;
  figures["paused_us"] = (after.paused - before.paused).us();
  figures["queue"] = std::move(queue);
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

}  // namespace

LiveSwitch::LiveSwitch(std::vector<std::unique_ptr<FramePort>> ports,
                       const LiveSwitchConfig& config)
    : config_(config),
      sample_timer_(loop_.add_timer(*this, kSample)),
      leaving_(kBurst),
      outgoing_(kBurst),
      changed_(kBurst) {
  for (auto& port : ports) {
    Port& own = ports_.emplace_back();
    own.port = std::move(port);
    own.arrived.resize(kBurst);
  }
}

Result<std::unique_ptr<LiveSwitch>> LiveSwitch::create(
    std::vector<std::unique_ptr<FramePort>> ports, const std::vector<Rate>& rates,
    const LiveSwitchConfig& config, Instant now) {
  const auto hosts = static_cast<uint32_t>(ports.size());
  Topology topology{.name = "switch", .hosts = hosts, .switches = 1};
  Bytes frame_bytes = 0;
  for (uint32_t i = 0; i < hosts; ++i) {
    topology.cables.push_back({.a = hosts, .b = i, .rate = rates[i], .delay = config.delay});
    topology.node_names.emplace_back(ports[i]->name());
    frame_bytes = std::max(frame_bytes, ports[i]->frame_bytes());
  }
  topology.node_names.emplace_back("switch");
  std::unique_ptr<LiveSwitch> made(new LiveSwitch(std::move(ports), config));
  made->loop_.run_until(now);
  ASSIGN_OR_RETURN(made->fabric_, Fabric::create(made->loop_, topology,
                                                 fabric_config(config, frame_bytes), config.seed));
  for (uint32_t i = 0; i < hosts; ++i) made->fabric_->port(i).set_listener(*made, i);
  SimFaults faults;
  faults.loss = config.loss;
  made->fabric_->set_faults(faults);
  made->loop_.arm(made->sample_timer_, now + config.sample);
  return made;
}

void LiveSwitch::on_event(Instant now, uint32_t what) {
  if (what != kSample) {
    ports_[what].has_output = true;
    return;
  }
  for (size_t i = 0; i < ports_.size(); ++i) {
    const Bytes queue = queue_bytes(i);
    ports_[i].queue_bytes.record(queue);
    if (sampler_) sampler_(now, i, queue);
  }
  loop_.arm(sample_timer_, now + config_.sample);
}

void LiveSwitch::fetch(Port& port, Instant now) {
  port.next = 0;
  port.count = port.port->receive(port.arrived, now);
  port.more = port.count == port.arrived.size();
}

// Samples do not count: one that is due is taken at the next event of another kind.
Instant LiveSwitch::next_deadline() {
  const Instant sample = loop_.deadline(sample_timer_);
  loop_.cancel(sample_timer_);
  const Instant next = loop_.next_time();
  loop_.arm(sample_timer_, sample);
  return next;
}

// The port with the frame that arrived first; null when none has arrived by `until`.
LiveSwitch::Port* LiveSwitch::earliest(Instant until) {
  Port* first = nullptr;
  for (Port& port : ports_) {
    if (port.next == port.count) continue;
    const Instant time = port.arrived[port.next].time;
    if (time > until) continue;
    if (first == nullptr || time < first->arrived[first->next].time) first = &port;
  }
  return first;
}

bool LiveSwitch::poll(Instant now) {
  Instant until = now;
  bool complete = true;
  for (Port& port : ports_) {
    if (port.next == port.count) fetch(port, now);
    if (!port.more) continue;
    // Frames that wait behind these may have arrived before other ports' frames.
    until = std::min(until, port.arrived[port.count - 1].time);
    complete = false;
  }
  until = std::max(until, loop_.now());
  while (Port* port = earliest(until)) {
    const ReceivedFrame& frame = port->arrived[port->next++];
    entry_lateness_.record(
        static_cast<uint64_t>(std::max<int64_t>((loop_.now() - frame.time).ns(), 0)));
    if (frame.time > loop_.now()) loop_.run_until(frame.time);
    enter(static_cast<uint32_t>(port - ports_.data()), frame);
  }
  loop_.run_until(until);
  for (uint32_t i = 0; i < ports_.size(); ++i) {
    if (ports_[i].has_output) drain(i, now);
  }
  return complete;
}

void LiveSwitch::enter(uint32_t from, const ReceivedFrame& received) {
  const MacNumber source = source_of(received.bytes);
  if (!is_group(source) && (port_of_.size() < kMaxAddresses || port_of_.contains(source))) {
    port_of_[source] = from;
  }
  const FrameHeaders headers = read_headers(received.bytes);
  FabricFrame frame{.bytes = received.bytes};
  frame.ecn = headers.ecn();
  const bool control = headers.ip_at > 0 && headers.traffic_class >> 2 == config_.control_dscp;
  if (control) frame.traffic_class = TrafficClass::kControl;
  if (config_.switches.trimming) frame.kept_bytes = kept_when_trimmed(received.bytes, headers);
  const auto known = port_of_.find(destination_of(received.bytes));
  if (known != port_of_.end()) return send_to(from, frame, known->second);
  for (uint32_t to = 0; to < ports_.size(); ++to) send_to(from, frame, to);
}

void LiveSwitch::send_to(uint32_t from, FabricFrame& frame, uint32_t to) {
  if (to == from) return;
  frame.destination = to;
  if (!fabric_->port(from).send_frame(frame)) ++ports_[from].nic_dropped;
}

// A frame as it leaves. Where the switch has changed it, `copy` holds its head, or all of it where
// telemetry follows.
OutgoingFrame LiveSwitch::finish(const RxPacket& packet, Bytes longest,
                                 std::vector<uint8_t>& copy) {
  const FrameHeaders headers = read_headers(packet.bytes, packet.trimmed);
  const bool marked = packet.ecn == Ecn::kCongestion && headers.ecn() != Ecn::kCongestion;
  const size_t tail = tail_bytes(packet, headers, longest);
  if (!marked && !packet.trimmed && tail == 0) return {.head = packet.bytes, .rest = {}};
  const auto first =
      packet.bytes.first(tail > 0 ? headers.end : std::min(packet.bytes.size(), kHeadBytes));
  copy.assign(first.begin(), first.end());
  if (tail > 0) {
    copy.resize(first.size() + tail);
    wire::encode_telemetry_tail(packet.telemetry, std::span(copy).last(tail));
  }
  if (marked) set_congestion(copy, headers);
  if (packet.trimmed || tail > 0) set_lengths(copy, headers);
  const auto rest = packet.bytes.subspan(tail > 0 ? packet.bytes.size() : first.size());
  return {.head = copy, .rest = rest};
}

void LiveSwitch::drain(uint32_t index, Instant now) {
  Port& port = ports_[index];
  port.has_output = false;
  const Duration behind = now - loop_.now();
  while (const size_t count = fabric_->port(index).receive(leaving_, loop_.now())) {
    for (size_t i = 0; i < count; ++i) {
      lateness_.record(static_cast<uint64_t>((behind + leaving_[i].waited).ns()));
      outgoing_[i] = finish(leaving_[i], port.port->frame_bytes() - kVlanTagBytes, changed_[i]);
    }
    port.port->send(std::span(outgoing_).first(count));
  }
}

PortCounts LiveSwitch::take_counts(size_t index) {
  Port& port = ports_[index];
  PortCounts counts{.port = port.port->counters(),
                    .egress = fabric_->link_stats(egress_of(index)),
                    .nic_dropped = port.nic_dropped,
                    .paused = fabric_->link_stats(ingress_of(index)).paused,
                    .queue_bytes = {}};
  std::swap(counts.queue_bytes, port.queue_bytes);
  return counts;
}

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

}  // namespace pacecar
