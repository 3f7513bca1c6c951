#include "bench/doctor/documents.h"

#include <algorithm>
#include <array>
#include <limits>

#include "bench/cli/json_fields.h"
#include "cc/controller.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"
#include "transport/metrics/metric_table.h"

namespace pacecar::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SilentProcess, host, pid, reason);

namespace {

using Json = nlohmann::json;
using cli::bool_field;
using cli::text_field;
using cli::unsigned_field;

constexpr uint64_t kSchemaVersion = 1;  // of states and of profiles
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxName = 256;
constexpr uint64_t kMostOfAll = std::numeric_limits<uint64_t>::max();
constexpr double kMostQuantity = 1e20;
constexpr double kNano = 1e-9;
constexpr double kBitsPerByte = 8;
constexpr size_t kEventNumbers = 20;
constexpr uint64_t kTooMuch = uint64_t{1} << 60;
constexpr size_t kMaxCommunicatorName = 64;
constexpr double kMostRank = 1e9;

// The names of the numbers that net_plugin/profiler has for collectives.
constexpr std::array<std::string_view, 11> kOperations = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
    "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};

tl::unexpected<Error> unusable(const std::string& what) {
  return fail(ErrorCode::kPeer,
              "there is no usable '" + what + "': run the same version of pacecar everywhere");
}

// Reads members until one is unusable.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  // The member; null if it is missing.
  const Json& at(const char* key) const {
    static const Json kMissing;
    const auto member = object_.find(key);
    return member == object_.end() ? kMissing : *member;
  }
  void text(std::string& to, const char* key, size_t most = kMaxName) {
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
  template <typename Number>
  void quantity(Number& to, const std::string& key, double least = 0, double most = kMostQuantity) {
    take(to, cli::number_field(object_, key, least, most));
  }
  void version() {
    uint64_t version = 0;
    take(version, unsigned_field(object_, "schema_version", kSchemaVersion, kSchemaVersion));
  }
  template <typename Value>
  void object(Value& to, const char* key, Result<Value> (*read)(const Json&)) {
    take(to, read(at(key)));
  }
  // `read` makes an element of a member of the array.
  template <typename Element>
  void list(std::vector<Element>& to, const char* key, Result<Element> (*read)(const Json&)) {
    if (!at(key).is_array()) return refuse(key);
    for (const Json& one : at(key)) {
      if (!status_) return;
      take(to.emplace_back(), read(one));
    }
  }
  void refuse(const std::string& key) {
    if (status_) status_ = unusable(key);
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

// By kEveryLimit.
Result<std::vector<uint64_t>> read_limits(const Json& object) {
  std::vector<uint64_t> counts;
  Reader reader(object);
  for (const LimitedBy limit : kEveryLimit) {
    reader.number(counts.emplace_back(), std::string(to_string(limit)).c_str());
  }
  return reader.result(std::move(counts));
}

Result<Flow> read_flow(const Json& object) {
  Flow flow;
  std::string direction;
  Reader reader(object);
  reader.text(direction, "direction");
  flow.sending = direction == "send";
  if (!flow.sending && direction != "receive") reader.refuse("direction");
  reader.text(flow.number, "number");
  reader.text(flow.peer, "peer");
  reader.text(flow.peer_identity, "peer_identity");
  reader.text(flow.state, "state");
  reader.text(flow.fault, "fault", kMaxText);
  reader.number(flow.requests, "requests");
  reader.seconds(flow.still_s, "still_ns");
  reader.flag(flow.awaits_peer, "awaits_peer");
  reader.number(flow.grant_bps, "grant_bps");
  if (!flow.sending) return reader.result(std::move(flow));
  reader.text(flow.limited_by, "limited_by");
  reader.object(flow.limits, "limits", read_limits);
  reader.number(flow.rate_bps, "rate_bps");
  reader.number(flow.core_bps, "core_bps");
  reader.number(flow.budget_bps, "budget_bps");
  reader.seconds(flow.rtt_s, "rtt_ns");
  reader.number(flow.path_mtu_bytes, "path_mtu_bytes");
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
  reader.text(sharer.program, "program");
  reader.number(sharer.pid, "pid");
  reader.number(sharer.out_demand_bps, "out_demand_bps");
  reader.number(sharer.out_part_bps, "out_part_bps");
  reader.number(sharer.in_demand_bps, "in_demand_bps");
  reader.number(sharer.in_part_bps, "in_part_bps");
  return reader.result(std::move(sharer));
}

using DeviceCounters = decltype(metrics::NicFigures::device);
Result<DeviceCounters> read_device(const Json& object) {
  DeviceCounters counters;
  Reader reader(object);
  if (!object.is_object()) reader.refuse("device");
  for (const auto& [name, value] : object.items()) {
    if (counters.size() == metrics::kMaxDeviceCounters) break;
    if (name.size() > kMaxName || printable(name) != name) reader.refuse("device");
    reader.quantity(counters.emplace_back(name, 0).second, name);
  }
  return reader.result(std::move(counters));
}

Result<metrics::NicFigures> read_statistics(const Json& object) {
  metrics::NicFigures figures;
  Reader reader(object);
  for (const metrics::Series& series : metrics::kSeries) {
    reader.quantity(figures.*series.value, std::string(series.key));
  }
  reader.object(figures.device, "device", read_device);
  return reader.result(std::move(figures));
}

template <bool kWithFlows>
Result<Nic> read_nic(const Json& object) {
  Nic nic;
  Reader reader(object);
  reader.text(nic.name, "name");
  reader.text(nic.identity, "identity");
  reader.number(nic.line_rate_bps, "line_rate_bps");
  reader.object(nic.figures, "statistics", read_statistics);
  reader.text(nic.figures.congestion_control, "congestion_control");
  nic.figures.nic = nic.name;
  nic.figures.line_rate = nic.line_rate_bps / kBitsPerByte;
  if (!kWithFlows) return reader.result(std::move(nic));
  reader.list(nic.flows, "flows", read_flow);
  reader.list(nic.sharers, "sharing", read_sharer);
  nic.link_down = reader.at("link") == "down";
  return reader.result(std::move(nic));
}

Result<ProcessorTime> read_processor(const Json& object) {
  ProcessorTime time;
  Reader reader(object);
  reader.number(time.run_ns, "run_ns");
  reader.number(time.waited_ns, "waited_ns");
  return reader.result(time);
}

Result<Process> read_process(const Json& object, Result<Nic> (*read)(const Json&)) {
  Process process;
  Reader reader(object);
  reader.version();
  reader.text(process.host, "host");
  reader.text(process.program, "program");
  reader.number(process.pid, "pid");
  reader.seconds(process.uptime_s, "uptime_ns");
  reader.object(process.processor, "processor", read_processor);
  if (object.contains("rank")) reader.number(process.rank.emplace(), "rank");
  reader.list(process.nics, "nics", read);
  return reader.result(std::move(process));
}

Result<ProfiledEvent> read_event(const Json& numbers) {
  if (!numbers.is_array() || numbers.size() != kEventNumbers) return unusable("operations");
  const auto usable = [](const Json& one) {
    return one.is_number_integer() &&
           (one.is_number_unsigned() ? one.get<uint64_t>() < kTooMuch : one.get<int64_t>() >= -1);
  };
  if (!std::all_of(numbers.begin(), numbers.end(), usable)) return unusable("operations");
  const auto number = [&](size_t i) { return numbers[i].get<uint64_t>(); };
  constexpr auto kLastKind = static_cast<uint64_t>(ProfiledKind::kProxyStep);
  if (number(1) > kLastKind) return unusable("operations");
  return ProfiledEvent{
      .id = number(0),
      .kind = static_cast<ProfiledKind>(number(1)),
      .operation = number(2) < kOperations.size() ? std::string(kOperations[number(2)]) : "another",
      .datatype = number(3),
      .sending = number(5) != 0,
      .peer = numbers[6].get<int64_t>(),
      .number = number(7),
      .amount = number(8),
      .parent = number(9),
      .start_ns = number(10),
      .stop_ns = number(11),
      .moment_ns = number(12),
      .first_ns = number(13),
      .detailed = number(19) != 0};
}

Result<Profile> read_profile(const Json& object) {
  Profile profile;
  Reader reader(object);
  reader.text(profile.communicator, "communicator", kMaxCommunicatorName);
  reader.quantity(profile.rank, "rank", -1, kMostRank);
  reader.list(profile.operations, "operations", read_event);
  reader.list(profile.steps, "steps", read_event);
  return reader.result(std::move(profile));
}

// When a page of profiles was made.
Result<uint64_t> read_moment(const Json& page) {
  uint64_t now_ns = 0;
  Reader reader(page);
  reader.version();
  reader.number(now_ns, "now_ns");
  return reader.result(now_ns);
}

Result<SilentProcess> read_silent(const Json& object) {
  SilentProcess process;
  Reader reader(object);
  reader.text(process.host, "host");
  reader.number(process.pid, "pid");
  reader.text(process.reason, "reason", kMaxText);
  return reader.result(std::move(process));
}

Result<Samples> read_pair(const Json& object) {
  const Reader reader(object);
  for (const char* key : {"before", "now"}) {
    if (!object.contains(key)) return unusable(key);
  }
  return Samples{reader.at("before"), reader.at("now"), reader.at("profile_before"),
                 reader.at("profile")};
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
    now.limited_by = to_string(kEveryLimit[i]);
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

Result<std::vector<Profile>> read_profiles(const Json& before, const Json& now) {
  ASSIGN_OR_RETURN(const auto moment, read_moment(now));
  ASSIGN_OR_RETURN(const auto earlier,
                   before.is_null() ? Result<uint64_t>(moment) : read_moment(before));
  std::vector<Profile> profiles;
  Reader reader(now);
  reader.list(profiles, "communicators", read_profile);
  for (Profile& profile : profiles) {
    profile.now_ns = moment;
    if (earlier < moment) profile.since_ns = earlier;
  }
  return reader.result(std::move(profiles));
}

Result<Process> read_samples(const Samples& samples) {
  auto now = read_process(samples.now, read_nic<true>);
  if (!now) return now;
  ASSIGN_OR_RETURN(const auto before,
                   samples.before.is_null() ? now : read_process(samples.before, read_nic<true>));
  if (!samples.profile.is_null()) {
    ASSIGN_OR_RETURN(now->profiles, read_profiles(samples.profile_before, samples.profile));
  }
  const double seconds = now->uptime_s - before.uptime_s;
  const auto [ran, waited] = before.processor;
  if (seconds > 0 && now->processor.run_ns >= ran && now->processor.waited_ns >= waited) {
    now->running = static_cast<double>(now->processor.run_ns - ran) * kNano / seconds;
    now->starved = static_cast<double>(now->processor.waited_ns - waited) * kNano / seconds;
  }
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
  return read_process(document, read_nic<false>);
}

Json to_json(const Evidence& evidence) {
  Json processes = Json::array();
  for (const Samples& one : evidence.seen) {
    Json process = {{"before", one.before}, {"now", one.now}};
    if (!one.profile.is_null()) {
      process["profile_before"] = one.profile_before;
      if (one.profile_before.is_object()) process["profile_before"].erase("communicators");
      process["profile"] = one.profile;
    }
    processes.push_back(std::move(process));
  }
  return {{"schema_version", kSchemaVersion},
          {"processes", std::move(processes)},
          {"silent", evidence.silent}};
}

Result<void> add_evidence(std::string_view text, Evidence& evidence) {
  const Json object = cli::parse_json(text);
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
