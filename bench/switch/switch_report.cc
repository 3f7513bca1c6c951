#include "bench/switch/switch_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pacecar {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

double mbps(Bytes bytes, Duration time) {
  return time.ns() > 0 ? static_cast<double>(bytes) * 8e-6 / time.seconds() : 0;
}

// What happened between two looks at the same port.
struct Difference {
  uint64_t frames = 0;  // on the cable to the port
  Bytes bytes = 0;      // with Ethernet's overhead
  uint64_t came_in = 0;
  uint64_t marked = 0;
  uint64_t trimmed = 0;
  uint64_t dropped = 0;
  uint64_t nic_dropped = 0;
  uint64_t missed = 0;
  uint64_t too_long = 0;
  uint64_t refused = 0;
  Duration paused;
};

Difference between(const PortCounts& before, const PortCounts& after) {
  return {.frames = after.egress.sent_packets - before.egress.sent_packets,
          .bytes = after.egress.sent_bytes - before.egress.sent_bytes,
          .came_in = after.port.received_frames - before.port.received_frames,
          .marked = after.egress.marked - before.egress.marked,
          .trimmed = after.egress.trimmed - before.egress.trimmed,
          .dropped = after.egress.dropped - before.egress.dropped,
          .nic_dropped = after.nic_dropped - before.nic_dropped,
          .missed = after.port.missed - before.port.missed,
          .too_long = after.port.too_long - before.port.too_long,
          .refused = after.port.refused - before.port.refused,
          .paused = after.paused - before.paused};
}

Json queue_json(const Histogram& samples, Bytes now, Bytes most) {
  return {{"now_bytes", now},
          {"p50_bytes", samples.value_at_percentile(50)},
          {"p99_bytes", samples.value_at_percentile(99)},
          {"max_bytes", most},
          {"samples", samples.count()}};
}

Json port_json(const std::string& name, const Difference& did, Duration time) {
  return {{"name", name},
          {"received_frames", did.came_in},
          {"sent_frames", did.frames},
          {"sent_bytes", did.bytes},
          {"sent_mbps", mbps(did.bytes, time)},
          {"marked", did.marked},
          {"trimmed", did.trimmed},
          {"dropped", did.dropped},
          {"nic_dropped", did.nic_dropped},
          {"missed", did.missed},
          {"too_long", did.too_long},
          {"refused", did.refused},
          {"paused_us", did.paused.us()}};
}

std::string port_line(const std::string& name, const Difference& did, Duration time,
                      const Json& queue) {
  return fmt::format("{:<12} {:>9} {:>9.1f} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}\n",
                     name, did.frames, mbps(did.bytes, time), did.marked, did.trimmed, did.dropped,
                     did.nic_dropped + did.missed, queue["now_bytes"].get<Bytes>(),
                     queue["p50_bytes"].get<Bytes>(), queue["p99_bytes"].get<Bytes>(),
                     queue["max_bytes"].get<Bytes>());
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
  return fmt::format("p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us",
                     static_cast<double>(late.value_at_percentile(50)) * 1e-3,
                     static_cast<double>(late.value_at_percentile(99)) * 1e-3,
                     static_cast<double>(late.max()) * 1e-3);
}

}  // namespace

SwitchReport::SwitchReport(LiveSwitch& live, Instant begin)
    : live_(live), begin_(begin), end_(begin), ports_(live.ports()) {
  for (size_t i = 0; i < ports_.size(); ++i) ports_[i].name = live.port(i).name();
}

SwitchReport::~SwitchReport() = default;

std::string SwitchReport::end_interval(Instant now) {
  const Duration time = now - end_;
  Json ports = Json::array();
  std::string text = heading();
  for (size_t i = 0; i < ports_.size(); ++i) {
    Port& port = ports_[i];
    PortCounts counts = live_.take_counts(i);
    const Difference did = between(port.last, counts);
    port.queue_bytes.merge(counts.queue_bytes);
    port.queue_max_bytes = std::max(port.queue_max_bytes, counts.egress.queue_max_bytes);
    Json queue =
        queue_json(counts.queue_bytes, counts.egress.queue_bytes, counts.egress.queue_max_bytes);
    text += port_line(port.name, did, time, queue);
    ports.push_back(port_json(port.name, did, time));
    ports.back()["queue"] = std::move(queue);
    counts.queue_bytes = {};
    port.last = std::move(counts);
  }
  live_.begin_counts();
  intervals_.push_back(
      {{"begin_s", end_.ns() * 1e-9}, {"end_s", now.ns() * 1e-9}, {"ports", std::move(ports)}});
  end_ = now;
  return text;
}

std::string SwitchReport::summary() const {
  std::string text = heading();
  for (const Port& port : ports_) {
    const Json queue =
        queue_json(port.queue_bytes, port.last.egress.queue_bytes, port.queue_max_bytes);
    text += port_line(port.name, between({}, port.last), end_ - begin_, queue);
  }
  text += fmt::format("frames left late: {}\n", late_text(live_.lateness()));
  return text + fmt::format("frames entered late: {}\n", late_text(live_.entry_lateness()));
}

Json SwitchReport::to_json() const {
  Json ports = Json::array();
  for (const Port& port : ports_) {
    ports.push_back(port_json(port.name, between({}, port.last), end_ - begin_));
    ports.back()["queue"] =
        queue_json(port.queue_bytes, port.last.egress.queue_bytes, port.queue_max_bytes);
  }
  const FabricCounters counters = live_.counters();
  return {{"schema_version", kSchemaVersion},
          {"begin_s", begin_.ns() * 1e-9},
          {"end_s", end_.ns() * 1e-9},
          {"lost_at_random", counters.dropped_for(FabricDrop::kLoss)},
          {"pauses", counters.pauses},
          {"left_late", late_json(live_.lateness())},
          {"entered_late", late_json(live_.entry_lateness())},
          {"ports", std::move(ports)},
          {"intervals", intervals_}};
}

}  // namespace pacecar
