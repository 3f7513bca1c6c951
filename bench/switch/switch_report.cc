#include "bench/switch/switch_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

}  // namespace

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
