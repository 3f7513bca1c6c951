#include "bench/perf/phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/json_fields.h"
#include "bench/perf/probe.h"
#include "cc/controller.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

// The counters that are reported, and their keys in JSON.
constexpr std::array<std::pair<const char*, uint64_t Statistics::*>, 7> kCounters = {{
    {"packets_sent", &Statistics::packets_sent},
    {"packets_received", &Statistics::packets_received},
    {"packets_retransmitted", &Statistics::packets_retransmitted},
    {"timeouts", &Statistics::timeouts},
    {"duplicates", &Statistics::duplicates},
    {"rejected", &Statistics::rejected},
    {"marked_packets", &Statistics::marked_packets},
}};

constexpr std::array<std::pair<const char*, double FlowView::*>, 6> kNumbers = {{
    {"rate_bps", &FlowView::rate_bps},
    {"grant_bps", &FlowView::grant_bps},
    {"share_bps", &FlowView::share_bps},
    {"core_bps", &FlowView::core_bps},
    {"budget_bps", &FlowView::budget_bps},
    {"rtt_us", &FlowView::rtt_us},
}};

constexpr std::array<std::pair<const char*, uint64_t FlowView::*>, 3> kCounts = {{
    {"grant_age_ns", &FlowView::grant_age_ns},
    {"phase_ns", &FlowView::phase_ns},
    {"epoch", &FlowView::epoch},
}};

constexpr size_t kMaxDeviceCounters = 256;
constexpr size_t kMaxCounterName = 64;

std::vector<DeviceCounter> changed(const std::vector<DeviceCounter>& before,
                                   const std::vector<DeviceCounter>& after) {
  std::vector<DeviceCounter> differences;
  for (const DeviceCounter& counter : after) {
    const auto old = std::ranges::find(before, counter.name, &DeviceCounter::name);
    if (old == before.end() || counter.count <= old->count) continue;
    differences.push_back({counter.name, counter.count - old->count});
  }
  return differences;
}

Result<std::vector<DeviceCounter>> device_counters_from_json(const Json& object) {
  if (!object.is_object() || object.size() > kMaxDeviceCounters) {
    return fail(ErrorCode::kPeer,
                "the peer sent no valid device counters: run the same version at both ends");
  }
  std::vector<DeviceCounter> counters;
  for (const auto& [name, value] : object.items()) {
    const Json wrapped = {{"name", name}};
    ASSIGN_OR_RETURN(const auto text, cli::text_field(wrapped, "name", kMaxCounterName));
    ASSIGN_OR_RETURN(const auto count, cli::unsigned_field(object, name, 0, UINT64_MAX));
    counters.push_back({text, count});
  }
  return counters;
}

constexpr Duration kReplyLimit = Duration::from_s(10);
constexpr Duration kChannelInterval = Duration::from_ms(2);
// Longer than a large message takes at a small --rate_limit; the transport notices dead peers.
constexpr Duration kStallLimit = Duration::from_s(60);

// Polls an end's streams, and now and then the control channel; fails when the streams stall.
class Pump {
 public:
  explicit Pump(const End& end) : end_(end), now_(cli::steady_now()), last_progress_(now_) {}

  // Polls once. Reads the control channel every kChannelInterval, until it has given a message.
  Result<void> poll() {
    const auto moved = end_.streams.poll();
    now_ = cli::steady_now();
    if (!moved) return tl::unexpected(end_.channel.explain(moved.error()));
    if (*moved > 0) {
      last_progress_ = now_;
    } else if (end_.rests) {
      end_.context.rest(end_.streams.nic);
    }
    if (now_ < next_channel_read_) return {};
    next_channel_read_ = now_ + kChannelInterval;
    if (now_ - last_progress_ > kStallLimit) {
      return fail(ErrorCode::kPeer,
                  "no message finished for {:.0f} s: raise --rate_limit, lower -s, or look at the "
                  "peer's messages",
                  kStallLimit.seconds());
    }
    if (message_) return {};
    ASSIGN_OR_RETURN(message_, end_.channel.poll());
    return {};
  }

  Instant now() const { return now_; }
  // The control channel's message, if there is one; the next is read once this one is taken.
  std::optional<Json> take_message() { return std::exchange(message_, std::nullopt); }

 private:
  const End& end_;
  Instant now_;
  Instant last_progress_;
  Instant next_channel_read_;
  std::optional<Json> message_;
};

// Measures an EndReport from its construction to finish().
class EndMeter {
 public:
  explicit EndMeter(const End& end) : end_(end) {}

  EndReport finish() const {
    EndReport report;
    report.cpu_s = (cli::process_cpu_time() - cpu_before_).seconds();
    report.growth = end_.context.statistics(end_.streams.nic);
    for (const auto& [key, counter] : kCounters) report.growth.*counter -= before_.*counter;
    report.growth.device_counters = changed(before_.device_counters, report.growth.device_counters);
    const auto& senders = end_.streams.senders;
    if (!senders.empty()) report.flow = senders.front().flow();
    return report;
  }

 private:
  const End& end_;
  Statistics before_ = end_.context.statistics(end_.streams.nic);
  Duration cpu_before_ = cli::process_cpu_time();
};

// Raises the limit of every stream by `messages` (0: no limit). All have finished equally many.
void set_limits(Streams& streams, uint64_t messages) {
  const uint64_t base = streams.senders.empty() ? streams.receivers.front().finished()
                                                : streams.senders.front().finished();
  streams.set_limit(messages == 0 ? kNoLimit : base + messages);
}

// The count in a message of this type.
Result<uint64_t> sent_count(const End& end, const Json& message, std::string_view type) {
  RETURN_IF_ERROR(end.channel.require(message, type));
  return cli::unsigned_field(message, "sent", 0, kNoLimit);
}

// After the time is over: waits until the messages in flight have arrived, in both directions.
Result<void> drain(const End& end, Pump& pump) {
  RETURN_IF_ERROR(end.channel.send({{"type", "stop"}, {"sent", end.streams.stop()}}));
  std::optional<uint64_t> expected;
  while (!expected || end.streams.received() < *expected ||
         end.streams.sent() < end.streams.stop()) {
    RETURN_IF_ERROR(pump.poll());
    if (expected) continue;  // the next message is the report
    if (const auto message = pump.take_message()) {
      ASSIGN_OR_RETURN(expected, sent_count(end, *message, "stopped"));
    }
  }
  return {};
}

}  // namespace

Result<void> check_counters(const std::vector<std::string>& names, const Context& context) {
  std::set<std::string> counted;
  for (const auto& [name, member] : kCounters) counted.insert(name);
  for (size_t nic = 0; nic < context.nics().size(); ++nic) {
    for (const DeviceCounter& each : context.statistics(nic).device_counters) {
      counted.insert(each.name);
    }
  }
  for (const std::string& name : names) {
    if (counted.contains(name)) continue;
    return invalid("-W {}: there is no such counter: choose from {}", name,
                   fmt::join(counted, ", "));
  }
  return {};
}

Json to_json(const FlowView& flow) {
  Json object = {{"limited_by", flow.limited_by}};
  for (const auto& [key, value] : kNumbers) object[key] = flow.*value;
  for (const auto& [key, value] : kCounts) object[key] = flow.*value;
  return object;
}

Result<FlowView> flow_view_from_json(const Json& object) {
  FlowView flow;
  ASSIGN_OR_RETURN(const auto reason, cli::text_field(object, "limited_by", 64));
  const auto known =
      std::ranges::find(kEveryLimit, reason, [](LimitedBy limit) { return to_string(limit); });
  if (known == kEveryLimit.end()) {
    return fail(ErrorCode::kPeer,
                "the peer's rate is limited by '{}', which is not known here: run the same version "
                "of pacecar at both ends",
                reason);
  }
  flow.limited_by = to_string(*known);
  for (const auto& [key, value] : kNumbers) {
    ASSIGN_OR_RETURN(flow.*value, cli::number_field(object, key, 0, cli::kMaxNumber));
  }
  for (const auto& [key, value] : kCounts) {
    ASSIGN_OR_RETURN(flow.*value, cli::unsigned_field(object, key, 0, UINT64_MAX));
  }
  return flow;
}

Json to_json(const EndReport& report) {
  const Statistics& growth = report.growth;
  Json object = {{"cpu_s", report.cpu_s},
                 {"device_counters", Json::object()},
                 {"congestion_control", {{"name", growth.congestion_control}}}};
  for (const auto& [key, counter] : kCounters) object["counters"][key] = growth.*counter;
  for (const auto& [name, count] : growth.device_counters) object["device_counters"][name] = count;
  if (report.flow) object["congestion_control"].update(to_json(*report.flow));
  return object;
}

Result<EndReport> end_report_from_json(const Json& object) {
  EndReport report;
  ASSIGN_OR_RETURN(report.cpu_s, cli::number_field(object, "cpu_s", 0, cli::kMaxNumber));
  const Json counters = object.value("counters", Json());
  for (const auto& [key, counter] : kCounters) {
    ASSIGN_OR_RETURN(report.growth.*counter, cli::unsigned_field(counters, key, 0, UINT64_MAX));
  }
  ASSIGN_OR_RETURN(report.growth.device_counters,
                   device_counters_from_json(object.value("device_counters", Json())));
  const Json control = object.value("congestion_control", Json());
  ASSIGN_OR_RETURN(report.growth.congestion_control, cli::text_field(control, "name", 64));
  if (!control.contains("limited_by")) return report;
  ASSIGN_OR_RETURN(report.flow, flow_view_from_json(control));
  return report;
}

Result<PhaseResult> run_phase(const End& end, Probe& probe) {
  const PhaseGoal goal = probe.goal();
  RETURN_IF_ERROR(
      end.channel.ask({{"type", "run"}, {"messages", goal.messages}}, "running", kReplyLimit));
  set_limits(end.streams, goal.messages);
  const uint64_t before = end.streams.finished();
  const uint64_t sent_before = end.streams.sent();
  const EndMeter meter(end);
  Pump pump(end);
  const Instant start = pump.now();
  probe.start(start, end.streams);
  const Instant deadline = goal.messages != 0 ? Instant::never() : start + goal.duration;
  const auto goes_on = [&] {
    if (pump.now() >= deadline || end.streams.at_limit()) return false;
    return !cli::Interrupt::asked() || !(goal.messages == 0 || end.streams.may_stop());
  };
  while (goes_on()) {
    RETURN_IF_ERROR(pump.poll());
    probe.on_poll(pump.now(), end.streams);
  }
  PhaseResult result{.elapsed = pump.now() - start,
                     .messages = end.streams.finished() - before,
                     .sent = end.streams.sent() - sent_before,
                     .client = meter.finish()};
  if (!end.streams.at_limit()) {  // the time is over, or it was interrupted
    RETURN_IF_ERROR(drain(end, pump));
  }
  // The report may have come before our last acknowledgements.
  auto message = pump.take_message();
  ASSIGN_OR_RETURN(const auto report, message ? Result<Json>(std::move(*message))
                                              : end.channel.expect("report", kReplyLimit));
  ASSIGN_OR_RETURN(result.server, end_report_from_json(report));
  return result;
}

Result<void> serve_phase(const End& end, bool echo) {
  ASSIGN_OR_RETURN(const auto run, end.channel.expect("run", kReplyLimit));
  ASSIGN_OR_RETURN(const auto messages, cli::unsigned_field(run, "messages", 0, kMaxIterations));
  Streams& streams = end.streams;
  set_limits(streams, messages);
  if (echo) streams.senders.front().set_limit(streams.received());

  const EndMeter meter(end);
  Pump pump(end);
  RETURN_IF_ERROR(pump.poll());  // posts the receives
  RETURN_IF_ERROR(end.channel.send({{"type", "running"}}));

  std::optional<EndReport> report;
  uint64_t to_receive = kNoLimit;
  uint64_t to_send = kNoLimit;
  while (!streams.at_limit() && (streams.received() < to_receive || streams.sent() < to_send)) {
    RETURN_IF_ERROR(pump.poll());
    if (echo) streams.senders.front().set_limit(streams.received());
    if (const auto message = pump.take_message()) {
      ASSIGN_OR_RETURN(const auto count, sent_count(end, *message, "stop"));
      report = meter.finish();
      to_receive = count;
      to_send = echo ? count : streams.stop();
      RETURN_IF_ERROR(end.channel.send({{"type", "stopped"}, {"sent", to_send}}));
    }
  }
  Json reply = to_json(report ? *report : meter.finish());
  reply["type"] = "report";
  return end.channel.send(reply);
}

}  // namespace pacecar::perf
