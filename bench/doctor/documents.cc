#include "bench/doctor/documents.h"

#include <algorithm>
#include <limits>

#include "bench/perf/json_fields.h"
#include "cc/controller.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"
#include "transport/metrics/exposition.h"
#include "transport/metrics/metric_table.h"

namespace pacecar::doctor {
namespace {

using Json = nlohmann::json;
using perf::bool_field;
using perf::text_field;
using perf::unsigned_field;

constexpr uint64_t kSchemaVersion = 1;
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxName = 256;
constexpr uint64_t kMostOfAll = std::numeric_limits<uint64_t>::max();
constexpr double kMostQuantity = 1e20;
constexpr double kNano = 1e-9;
constexpr double kBitsPerByte = 8;

// Reads members until one is unusable.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void text(std::string& to, const char* key, size_t most) {
    take(to, text_field(object_, key, most));
  }
  void flag(bool& to, const char* key) { take(to, bool_field(object_, key)); }
  template <typename Number>
  void number(Number& to, const char* key) {
    take(to, unsigned_field(object_, key, 0, kMostOfAll));
  }
  void seconds(double& to, const char* key) {
    number(to, key);
    to *= kNano;
  }
  void quantity(double& to, const std::string& key) {
    take(to, perf::number_field(object_, key, 0, kMostQuantity));
  }
  template <typename Value>
  void object(Value& to, const char* key, Result<Value> (*read)(const Json&)) {
    const auto member = object_.is_object() ? object_.find(key) : object_.end();
    if (member == object_.end()) return refuse(key);
    take(to, read(*member));
  }
  void version() {
    uint64_t version = 0;
    take(version, unsigned_field(object_, "schema_version", kSchemaVersion, kSchemaVersion));
  }
  // `read` makes an element of a member of the array.
  template <typename Element>
  void list(std::vector<Element>& to, const char* key, Result<Element> (*read)(const Json&)) {
    const auto member = object_.is_object() ? object_.find(key) : object_.end();
    if (member == object_.end() || !member->is_array()) return refuse(key);
    for (const Json& one : *member) {
      if (!status_) return;
      auto element = read(one);
      if (element) {
        to.push_back(std::move(*element));
      } else {
        status_ = tl::unexpected(element.error());
      }
    }
  }
  void refuse(const std::string& key) {
    if (status_) {
      status_ = fail(ErrorCode::kPeer, "there is no usable '" + key +
                                           "': run the same version of pacecar everywhere");
    }
  }

  template <typename Value>
  Result<Value> result(Value value) const {
    if (!status_) return tl::unexpected(status_.error());
    return value;
  }

 private:
  template <typename Target, typename Value>
  void take(Target& to, Result<Value> value) {
    if (value) {
      to = static_cast<Target>(std::move(*value));
    } else if (status_) {
      status_ = tl::unexpected(value.error());
    }
  }

  const Json& object_;
  Result<void> status_;
};

std::vector<uint64_t> read_limits(const Json& object, Reader& flow) {
  const Json limits = object.is_object() ? object.value("limits", Json()) : Json();
  std::vector<uint64_t> counts;
  Reader reader(limits);
  for (const LimitedBy limit : kLimits) {
    reader.number(counts.emplace_back(), std::string(to_string(limit)).c_str());
  }
  if (!reader.result(true)) flow.refuse("limits");
  return counts;
}

Result<Flow> read_flow(const Json& object) {
  Flow flow;
  std::string direction;
  Reader reader(object);
  reader.text(direction, "direction", kMaxName);
  flow.sending = direction == "send";
  if (!flow.sending && direction != "receive") reader.refuse("direction");
  reader.text(flow.number, "number", kMaxName);
  reader.text(flow.peer, "peer", kMaxName);
  reader.text(flow.peer_identity, "peer_identity", kMaxName);
  reader.text(flow.state, "state", kMaxName);
  reader.text(flow.fault, "fault", kMaxText);
  reader.number(flow.requests, "requests");
  reader.seconds(flow.still_s, "still_ns");
  reader.flag(flow.awaits_peer, "awaits_peer");
  reader.number(flow.grant_bps, "grant_bps");
  if (!flow.sending) return reader.result(std::move(flow));
  reader.text(flow.limited_by, "limited_by", kMaxName);
  flow.limits = read_limits(object, reader);
  reader.number(flow.rate_bps, "rate_bps");
  reader.number(flow.core_bps, "core_bps");
  reader.number(flow.budget_bps, "budget_bps");
  reader.seconds(flow.rtt_s, "rtt_ns");
  reader.number(flow.unacknowledged_writes, "unacknowledged_writes");
  reader.number(flow.backlog_bytes, "backlog_bytes");
  reader.number(flow.in_flight_bytes, "in_flight_bytes");
  reader.number(flow.sent_bytes, "sent_bytes");
  reader.number(flow.acknowledged_bytes, "acknowledged_bytes");
  return reader.result(std::move(flow));
}

Result<Sharer> read_sharer(const Json& object) {
  Sharer sharer;
  Reader reader(object);
  reader.text(sharer.program, "program", kMaxName);
  reader.number(sharer.pid, "pid");
  reader.number(sharer.out_demand_bps, "out_demand_bps");
  reader.number(sharer.out_part_bps, "out_part_bps");
  reader.number(sharer.in_demand_bps, "in_demand_bps");
  reader.number(sharer.in_part_bps, "in_part_bps");
  return reader.result(std::move(sharer));
}

metrics::NicFigures read_figures(Reader& reader) {
  metrics::NicFigures figures;
  metrics::for_each_series([&](const metrics::Series& series) {
    if (!series.key.empty()) reader.quantity(figures.*series.value, std::string(series.key));
  });
  return figures;
}

Result<metrics::NicFigures> read_statistics(const Json& object) {
  Reader reader(object);
  metrics::NicFigures figures = read_figures(reader);
  const auto device = object.is_object() ? object.find("device") : object.end();
  if (device == object.end() || !device->is_object()) {
    reader.refuse("device");
    return reader.result(std::move(figures));
  }
  Reader counters(*device);
  for (const auto& [name, value] : device->items()) {
    if (figures.device.size() == metrics::kMaxDeviceCounters) break;
    if (name.size() > kMaxName || printable(name) != name) counters.refuse("device");
    counters.quantity(figures.device.emplace_back(name, 0).second, name);
  }
  if (auto usable = counters.result(true); !usable) reader.refuse("device");
  return reader.result(std::move(figures));
}

Nic read_nic_summary(Reader& reader) {
  Nic nic;
  reader.text(nic.name, "name", kMaxName);
  reader.text(nic.identity, "identity", kMaxName);
  reader.number(nic.line_rate_bps, "line_rate_bps");
  reader.object(nic.figures, "statistics", read_statistics);
  reader.text(nic.figures.congestion_control, "congestion_control", kMaxName);
  nic.figures.nic = nic.name;
  nic.figures.line_rate = nic.line_rate_bps / kBitsPerByte;
  return nic;
}

Result<Nic> read_summary_of_nic(const Json& object) {
  Reader reader(object);
  Nic nic = read_nic_summary(reader);
  return reader.result(std::move(nic));
}

Result<Nic> read_nic(const Json& object) {
  Reader reader(object);
  Nic nic = read_nic_summary(reader);
  reader.list(nic.flows, "flows", read_flow);
  reader.list(nic.sharers, "sharing", read_sharer);
  nic.link_down = object.is_object() && object.value("link", Json()) == "down";
  return reader.result(std::move(nic));
}

Result<Process> read_process(const Json& object, Result<Nic> (*read)(const Json&)) {
  Process process;
  Reader reader(object);
  reader.version();
  reader.text(process.host, "host", kMaxName);
  reader.text(process.program, "program", kMaxName);
  reader.number(process.pid, "pid");
  reader.seconds(process.uptime_s, "uptime_ns");
  if (object.is_object() && object.contains("rank")) {
    reader.number(process.rank.emplace(), "rank");
  }
  reader.list(process.nics, "nics", read);
  return reader.result(std::move(process));
}

Result<SilentProcess> read_silent(const Json& object) {
  SilentProcess process;
  Reader reader(object);
  reader.text(process.host, "host", kMaxName);
  reader.number(process.pid, "pid");
  reader.text(process.reason, "reason", kMaxText);
  return reader.result(std::move(process));
}

Result<Sighting> read_pair(const Json& object) {
  Reader reader(object);
  if (!object.is_object() || !object.contains("before")) reader.refuse("before");
  if (!object.is_object() || !object.contains("now")) reader.refuse("now");
  RETURN_IF_ERROR(reader.result(true));
  return Sighting{object["before"], object["now"], object.value("profile_before", Json()),
                  object.value("profile", Json())};
}

// Bytes that are neither acknowledged nor in flight are lost.
uint64_t lost_bytes(const Flow& flow) {
  const uint64_t arrives = flow.acknowledged_bytes + flow.in_flight_bytes;
  return flow.sent_bytes > arrives ? flow.sent_bytes - arrives : 0;
}

const Flow* same_flow(const Process& process, const std::string& nic_identity, const Flow& flow) {
  for (const Nic& nic : process.nics) {
    if (nic.identity != nic_identity) continue;
    const auto same = std::find_if(nic.flows.begin(), nic.flows.end(), [&flow](const Flow& one) {
      return one.sending == flow.sending && one.number == flow.number &&
             one.peer_identity == flow.peer_identity;
    });
    if (same != nic.flows.end()) return &*same;
  }
  return nullptr;
}

// Between the two looks, as the process itself has looked at the flow.
void most_of_the_time(const Flow& before, Flow& now) {
  uint64_t most = 0;
  for (size_t i = 0; i < now.limits.size(); ++i) {
    if (now.limits[i] < before.limits[i] || now.limits[i] - before.limits[i] <= most) continue;
    most = now.limits[i] - before.limits[i];
    now.limited_by = to_string(kLimits[i]);
  }
}

void compare(const Flow& before, double seconds, Flow& now) {
  if (now.acknowledged_bytes < before.acknowledged_bytes || now.sent_bytes < before.sent_bytes) {
    return;
  }
  const auto bytes = static_cast<double>(now.acknowledged_bytes - before.acknowledged_bytes);
  now.goodput_bps = 8 * bytes / seconds;
  now.tried_bytes = now.sent_bytes - before.sent_bytes;
  if (now.sending) most_of_the_time(before, now);
  const uint64_t lost = lost_bytes(before);
  now.repeated_bytes -= std::min(lost, now.repeated_bytes);
}

}  // namespace

Result<Process> read_sighting(const Sighting& sighting) {
  auto now = read_process(sighting.now, read_nic);
  if (!now) return now;
  ASSIGN_OR_RETURN(const auto before,
                   sighting.before.is_null() ? now : read_process(sighting.before, read_nic));
  if (!sighting.profile.is_null()) {
    ASSIGN_OR_RETURN(now->profiles, read_profiles(sighting.profile_before, sighting.profile));
  }
  const double seconds = now->uptime_s - before.uptime_s;
  for (Nic& nic : now->nics) {
    for (Flow& flow : nic.flows) {
      flow.tried_bytes = flow.sent_bytes;
      flow.repeated_bytes = lost_bytes(flow);
      const Flow* const earlier = same_flow(before, nic.identity, flow);
      if (seconds > 0 && earlier != nullptr) compare(*earlier, seconds, flow);
    }
  }
  return now;
}

Result<Process> read_summary(const Json& document) {
  return read_process(document, read_summary_of_nic);
}

Json to_json(const Evidence& evidence) {
  Json processes = Json::array();
  for (const Sighting& one : evidence.seen) {
    Json process = {{"before", one.before}, {"now", one.now}};
    if (!one.profile.is_null()) {
      process["profile_before"] = one.profile_before;
      if (one.profile_before.is_object()) process["profile_before"].erase("communicators");
      process["profile"] = one.profile;
    }
    processes.push_back(std::move(process));
  }
  Json silent = Json::array();
  for (const SilentProcess& one : evidence.silent) {
    silent.push_back({{"host", one.host}, {"pid", one.pid}, {"reason", one.reason}});
  }
  return {{"schema_version", kSchemaVersion},
          {"processes", std::move(processes)},
          {"silent", std::move(silent)}};
}

Result<void> add_evidence(std::string_view text, Evidence& evidence) {
  const Json object = perf::parse_json(text);
  Evidence more;
  Reader reader(object);
  reader.version();
  reader.list(more.seen, "processes", read_pair);
  reader.list(more.silent, "silent", read_silent);
  ASSIGN_OR_RETURN(auto read, reader.result(std::move(more)));
  std::move(read.seen.begin(), read.seen.end(), std::back_inserter(evidence.seen));
  std::move(read.silent.begin(), read.silent.end(), std::back_inserter(evidence.silent));
  return {};
}

}  // namespace pacecar::doctor
