#include "bench/doctor/clocks.h"

#include <algorithm>
#include <limits>
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

}  // namespace pacecar::doctor
