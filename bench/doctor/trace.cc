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

using Json = nlohmann::json;

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max() / 4;

// Identifies a message of a communicator: collective, source rank, destination rank, channel, step.
using MessageKey = std::tuple<CollectiveKey, int64_t, int64_t, uint64_t, uint64_t>;
using Times = std::map<MessageKey, uint64_t>;  // of sending or of arrival, in nanoseconds

void add_times(const Profile& profile, Times& sent, Times& arrived) {
  std::map<uint64_t, CollectiveKey> collectives;
  for (const ProfiledEvent& event : profile.operations) {
    if (event.kind != ProfiledKind::kCollective) continue;
    collectives[event.id] = {event.operation, event.number};
  }
  profile.for_each_message([&](const ProfiledEvent& step, const ProfiledEvent& op) {
    const auto whole = collectives.find(op.parent);
    if (step.moment_ns == 0 || whole == collectives.end()) return;
    const int64_t from = op.sending ? profile.rank : op.peer;
    const int64_t to = op.sending ? op.peer : profile.rank;
    (op.sending ? sent : arrived)[{whole->second, from, to, op.channel, step.number}] =
        step.moment_ns;
  });
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

constexpr double kMicrosPerNano = 1e-3;
constexpr double kMicrosPerSecond = 1e6;
// Rows of a rank: its collectives, then two of each channel, then two of its requests.
constexpr uint64_t kCollectiveRow = 0;

double micros(uint64_t ns) { return static_cast<double>(ns) * kMicrosPerNano; }

uint64_t row_of(const ProfiledEvent& op) { return 1 + 2 * op.channel + (op.sending ? 0 : 1); }

// Adds one rank's events to the list.
class RankTrace {
 public:
  RankTrace(const Member& member, double offset_s, Json& events)
      : profile_(*member.profile), offset_us_(offset_s * kMicrosPerSecond), events_(events) {
    describe("process_name", kCollectiveRow, {{"name", name_of(*member.process)}});
    describe("thread_name", kCollectiveRow, {{"name", "collectives"}});
    describe("process_sort_index", kCollectiveRow, {{"sort_index", profile_.rank}});
  }

  void add_all() {
    for (const ProfiledEvent& event : profile_.operations) {
      if (event.kind == ProfiledKind::kCollective || event.kind == ProfiledKind::kPointToPoint) {
        add(event, kCollectiveRow, fmt::format("{} {}", event.operation, event.number),
            {{"count", event.amount}, {"bytes", event.bytes}});
      } else if (event.kind == ProfiledKind::kProxyOp) {
        describe("thread_name", row_of(event),
                 {{"name", fmt::format("channel {} {} rank {}", event.channel,
                                       event.sending ? "to" : "from", event.peer)}});
      }
    }
    profile_.for_each_message([this](const ProfiledEvent& step, const ProfiledEvent& operation) {
      add(step, row_of(operation), fmt::format("step {}", step.number),
          {{"bytes", step.bytes},
           {"gpu_us", micros(step.waits.gpu_ns)},
           {"peer_us", micros(step.waits.peer_ns)},
           {"network_us", micros(step.waits.network_ns)},
           {"flush_us", micros(step.waits.flush_ns)}});
    });
  }

 private:
  void add(const ProfiledEvent& event, uint64_t row, const std::string& text, Json arguments) {
    const uint64_t until = event.stop_ns == 0 ? profile_.now_ns : event.stop_ns;
    events_.push_back({{"ph", "X"},
                       {"name", text},
                       {"pid", profile_.rank},
                       {"tid", row},
                       {"ts", micros(event.start_ns) - offset_us_},
                       {"dur", until > event.start_ns ? micros(until - event.start_ns) : 0.0},
                       {"args", std::move(arguments)}});
  }

  // Once for each kind and row.
  void describe(const char* kind, uint64_t row, Json arguments) {
    if (!described_.emplace(kind, row).second) return;
    events_.push_back({{"ph", "M"},
                       {"name", kind},
                       {"pid", profile_.rank},
                       {"tid", row},
                       {"args", std::move(arguments)}});
  }

  const Profile& profile_;
  const double offset_us_;
  Json& events_;
  std::set<std::pair<std::string_view, uint64_t>> described_;
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
    offsets[i] = static_cast<double>(offset) * 1e-9;
  }
  return offsets;
}

Json trace_of(const Job& job) {
  Json events = Json::array();
  for (const auto& [communicator, members] : communicators(job)) {
    const std::vector<double> offsets = clock_offsets(members);
    for (size_t i = 0; i < members.size(); ++i) RankTrace(members[i], offsets[i], events).add_all();
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace pacecar::doctor
