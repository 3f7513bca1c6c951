#include "bench/doctor/clocks.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace pacecar::doctor {
namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max() / 4;
constexpr double kNanosecond = 1e-9;

// A message of a communicator: its collective, from rank, to rank, channel and step.
using MessageKey = std::tuple<CollectiveKey, int64_t, int64_t, uint64_t, uint64_t>;
using Moments = std::map<MessageKey, uint64_t>;  // of departure, or of arrival

void add_moments(const Profile& profile, Moments& left, Moments& came) {
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
      left[{whole->second, profile.rank, op.peer, op.channel, step.number}] = step.moment_ns;
    } else {
      came[{whole->second, op.peer, profile.rank, op.channel, step.number}] = step.moment_ns;
    }
  }
}

// bounds[i][j]: the clock of j is ahead of that of i by this much at most, in nanoseconds.
using Bounds = std::vector<std::vector<int64_t>>;

Bounds bounds_of(const std::vector<Member>& members) {
  std::map<int64_t, size_t> places;
  Moments left;
  Moments came;
  for (size_t i = 0; i < members.size(); ++i) {
    places[members[i].profile->rank] = i;
    add_moments(*members[i].profile, left, came);
  }
  Bounds bounds(members.size(), std::vector<int64_t>(members.size(), kUnbounded));
  for (const auto& [message, left_ns] : left) {
    const auto arrival = came.find(message);
    const auto from = places.find(std::get<1>(message));
    const auto to = places.find(std::get<2>(message));
    if (arrival == came.end() || from == places.end() || to == places.end()) continue;
    int64_t& bound = bounds[from->second][to->second];
    bound = std::min(bound, static_cast<int64_t>(arrival->second) - static_cast<int64_t>(left_ns));
  }
  return bounds;
}

// Tightens the bounds by chains of messages.
void close(Bounds& bounds) {
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
  close(bounds);
  std::vector<double> offsets(members.size(), 0);
  for (size_t i = 1; i < members.size(); ++i) {
    const int64_t most = bounds[0][i];
    const int64_t least = bounds[i][0] == kUnbounded ? -kUnbounded : -bounds[i][0];
    if (most == kUnbounded && least == -kUnbounded) continue;
    const int64_t offset = most == kUnbounded     ? least
                           : least == -kUnbounded ? most
                                                  : least + (most - least) / 2;
    offsets[i] = static_cast<double>(offset) * kNanosecond;
  }
  return offsets;
}

}  // namespace pacecar::doctor
