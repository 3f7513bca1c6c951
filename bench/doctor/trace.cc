#include "bench/doctor/trace.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/doctor/clocks.h"

namespace pacecar::doctor {
namespace {

using TraceJson = nlohmann::json;

constexpr double kMicrosPerNano = 1e-3;
constexpr double kMicrosPerSecond = 1e6;
// Rows of a rank: its collectives, then two of each channel, then two of its requests.
constexpr uint64_t kCollectiveRow = 0;

double micros(uint64_t ns) { return static_cast<double>(ns) * kMicrosPerNano; }

uint64_t row_of(const ProfiledEvent& op) { return 1 + 2 * op.channel + (op.sending ? 0 : 1); }

// Adds one rank's events to the list.
class RankTrace {
 public:
  RankTrace(const Member& member, double offset_s, TraceJson& events)
      : profile_(*member.profile), offset_us_(offset_s * kMicrosPerSecond), events_(events) {
    name("process_name", kCollectiveRow, name_of(*member.process));
    name("thread_name", kCollectiveRow, "collectives");
    events_.push_back({{"ph", "M"},
                       {"name", "process_sort_index"},
                       {"pid", profile_.rank},
                       {"tid", 0},
                       {"args", {{"sort_index", profile_.rank}}}});
  }

  void add_all() {
    std::map<uint64_t, const ProfiledEvent*> operations;
    for (const ProfiledEvent& event : profile_.operations) {
      if (event.kind == ProfiledKind::kCollective || event.kind == ProfiledKind::kPointToPoint) {
        add(event, kCollectiveRow, fmt::format("{} {}", event.operation, event.number),
            {{"count", event.amount}, {"bytes", event.bytes}});
      } else if (event.kind == ProfiledKind::kProxyOp) {
        operations[event.id] = &event;
        name("thread_name", row_of(event),
             fmt::format("channel {} {} rank {}", event.channel, event.sending ? "to" : "from",
                         event.peer));
      }
    }
    for (const ProfiledEvent& step : profile_.steps) {
      const auto operation = operations.find(step.parent);
      if (step.kind != ProfiledKind::kProxyStep || operation == operations.end()) continue;
      add_step(step, *operation->second);
    }
  }

 private:
  void add_step(const ProfiledEvent& step, const ProfiledEvent& operation) {
    add(step, row_of(operation), fmt::format("step {}", step.number),
        {{"bytes", step.bytes},
         {"gpu_us", micros(step.waits.gpu_ns)},
         {"peer_us", micros(step.waits.peer_ns)},
         {"network_us", micros(step.waits.network_ns)},
         {"flush_us", micros(step.waits.flush_ns)}});
  }

  void add(const ProfiledEvent& event, uint64_t row, const std::string& text, TraceJson arguments) {
    const uint64_t until = event.stop_ns == 0 ? profile_.now_ns : event.stop_ns;
    events_.push_back({{"ph", "X"},
                       {"name", text},
                       {"pid", profile_.rank},
                       {"tid", row},
                       {"ts", micros(event.start_ns) - offset_us_},
                       {"dur", until > event.start_ns ? micros(until - event.start_ns) : 0.0},
                       {"args", std::move(arguments)}});
  }

  void name(const char* kind, uint64_t row, const std::string& text) {
    if (const auto known = names_.emplace(fmt::format("{} {}", kind, row)); !known.second) return;
    events_.push_back({{"ph", "M"},
                       {"name", kind},
                       {"pid", profile_.rank},
                       {"tid", row},
                       {"args", {{"name", text}}}});
  }

  const Profile& profile_;
  const double offset_us_;
  TraceJson& events_;
  std::set<std::string> names_;
};

}  // namespace

TraceJson trace_of(const Job& job) {
  TraceJson events = TraceJson::array();
  for (const auto& [communicator, members] : communicators(job)) {
    const std::vector<double> offsets = clock_offsets(members);
    for (size_t i = 0; i < members.size(); ++i) RankTrace(members[i], offsets[i], events).add_all();
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace pacecar::doctor
