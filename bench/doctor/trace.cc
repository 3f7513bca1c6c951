#include "bench/doctor/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace pacecar::doctor {
namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max() / 4;
constexpr double kNanosecond = 1e-9;

// Identifies a message of a communicator: collective, source rank, destination rank, channel, step.
using MessageKey = std::tuple<CollectiveKey, int64_t, int64_t, uint64_t, uint64_t>;
using Times = std::map<MessageKey, uint64_t>;  // of sending or of arrival, in nanoseconds

void add_times(const Profile& profile, Times& sent, Times& arrived) {
  std::map<uint64_t, CollectiveKey> collectives;
  std::map<uint64_t, const ProfiledEvent*> operations;
  for (const ProfiledEvent& event : profile.operations) {
    if (event.kind == ProfiledKind::kCollective) {
      collectives[event.id] = {event.operation, event.number};
    } else if (event.kind == ProfiledKind::kProxyOp) {
      operations[event.id] = &event;
    }
  }
  for (const ProfiledEvent& step : profile.steps) {
    const auto operation = operations.find(step.parent);
    const bool usable = step.kind == ProfiledKind::kProxyStep && step.moment_ns != 0;
    if (!usable || operation == operations.end()) continue;
    const ProfiledEvent& op = *operation->second;
    const auto whole = collectives.find(op.parent);
    if (whole == collectives.end()) continue;
    if (op.sending) {
      sent[{whole->second, profile.rank, op.peer, op.channel, step.number}] = step.moment_ns;
    } else {
      arrived[{whole->second, op.peer, profile.rank, op.channel, step.number}] = step.moment_ns;
    }
  }
}

// bounds[i][j]: the clock of j is ahead of the clock of i by at most so many nanoseconds.
using Bounds = std::vector<std::vector<int64_t>>;

Bounds bounds_of(const std::vector<Member>& members) {
  std::map<int64_t, size_t> indices;
  Times sent;
  Times arrived;
  for (size_t i = 0; i < members.size(); ++i) {
    indices[members[i].profile->rank] = i;
    add_times(*members[i].profile, sent, arrived);
  }
  Bounds bounds(members.size(), std::vector<int64_t>(members.size(), kUnbounded));
  for (const auto& [message, sent_ns] : sent) {
    const auto arrival = arrived.find(message);
    const auto from = indices.find(std::get<1>(message));
    const auto to = indices.find(std::get<2>(message));
    if (arrival == arrived.end() || from == indices.end() || to == indices.end()) continue;
    int64_t& bound = bounds[from->second][to->second];
    bound = std::min(bound, static_cast<int64_t>(arrival->second) - static_cast<int64_t>(sent_ns));
  }
  return bounds;
}

// Tightens the bounds by chains of messages: the shortest paths of Floyd and Warshall.
void tighten(Bounds& bounds) {
  for (size_t middle = 0; middle < bounds.size(); ++middle) {
    for (auto& row : bounds) {
      for (size_t to = 0; to < bounds.size(); ++to) {
        if (row[middle] == kUnbounded || bounds[middle][to] == kUnbounded) continue;
        const int64_t through = row[middle] + bounds[middle][to];
        row[to] = std::clamp(through, -kUnbounded, row[to]);
      }
    }
  }
}

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

std::vector<double> clock_offsets(const std::vector<Member>& members) {
  Bounds bounds = bounds_of(members);
  tighten(bounds);
  std::vector<double> offsets(members.size(), 0);
  for (size_t i = 1; i < members.size(); ++i) {
    const int64_t highest = bounds[0][i];
    const int64_t lowest = bounds[i][0] == kUnbounded ? -kUnbounded : -bounds[i][0];
    if (highest == kUnbounded && lowest == -kUnbounded) continue;
    const int64_t offset = highest == kUnbounded   ? lowest
                           : lowest == -kUnbounded ? highest
                                                   : lowest + (highest - lowest) / 2;
    offsets[i] = static_cast<double>(offset) * kNanosecond;
  }
  return offsets;
}

TraceJson trace_of(const Job& job) {
  TraceJson events = TraceJson::array();
  for (const auto& [communicator, members] : communicators(job)) {
    const std::vector<double> offsets = clock_offsets(members);
    for (size_t i = 0; i < members.size(); ++i) RankTrace(members[i], offsets[i], events).add_all();
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace pacecar::doctor
