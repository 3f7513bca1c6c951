#include "bench/doctor/collectives.h"

#include <algorithm>

namespace pacecar::doctor {
namespace {

constexpr double kSecondsPerNs = 1e-9;
constexpr uint64_t kWithoutSecondLook = 5'000'000'000;  // so much of the record counts

double seconds(uint64_t ns) { return static_cast<double>(ns) * kSecondsPerNs; }

struct Parts {
  Part part;
  size_t open = 0;  // operations that go on
  size_t all = 0;
  size_t sends = 0;
};

void add_operation(const ProfiledEvent& op, Parts& to) {
  ++to.all;
  to.open += op.stop_ns == 0;
  const double began = seconds(op.start_ns);
  to.part.began_s = to.all == 1 ? began : std::min(to.part.began_s, began);
  to.part.ended_s = std::max(to.part.ended_s, seconds(op.stop_ns));
  to.part.detailed = to.part.detailed && op.detailed;
  if (op.sending) {
    ++to.sends;
    to.part.first_s += seconds(op.first_ns);
  } else {
    to.part.taken_s += seconds(op.waits.gpu_ns + op.waits.flush_ns);
  }
}

// From when each end waits for the network until it has the message. In the order of their starts.
using Intervals = std::vector<std::pair<uint64_t, uint64_t>>;

Messages messages_of(const Intervals& intervals) {
  Messages messages;
  uint64_t busy_ns = 0;
  uint64_t until_ns = 0;
  for (const auto& [from_ns, to_ns] : intervals) {
    messages.took_s.push_back(seconds(to_ns - from_ns));
    if (to_ns > until_ns) busy_ns += to_ns - std::max(from_ns, until_ns);
    until_ns = std::max(until_ns, to_ns);
  }
  const uint64_t span_ns = until_ns - intervals.front().first;
  if (span_ns > 0) messages.busy = seconds(busy_ns) / seconds(span_ns);
  return messages;
}

void add_messages(const Profile& profile,
                  const std::map<uint64_t, const ProfiledEvent*>& operations, Member& member) {
  std::map<std::pair<bool, int64_t>, Intervals> all;
  for (const ProfiledEvent& step : profile.steps) {
    const auto operation = operations.find(step.parent);
    const bool through = step.kind == ProfiledKind::kProxyStep && step.stop_ns != 0;
    if (!through || operation == operations.end()) continue;
    const bool sending = operation->second->sending;
    // A send's data leaves, a receive's comes.
    const uint64_t moment = step.moment_ns == 0 ? step.stop_ns : step.moment_ns;
    const uint64_t from = sending ? moment : step.start_ns;
    const uint64_t to = sending ? step.stop_ns : moment;
    if (from <= to) all[{sending, operation->second->peer}].emplace_back(from, to);
  }
  for (auto& [whose, intervals] : all) {
    std::sort(intervals.begin(), intervals.end());
    (whose.first ? member.sent : member.received)[whose.second] = messages_of(intervals);
  }
}

Member member_of(const Process& process, const Profile& profile) {
  Member member{.process = &process, .profile = &profile};
  const uint64_t since = profile.since_ns != 0                 ? profile.since_ns
                         : profile.now_ns > kWithoutSecondLook ? profile.now_ns - kWithoutSecondLook
                                                               : 0;
  std::map<uint64_t, CollectiveKey> keys;  // by id
  std::map<CollectiveKey, Parts> parts;
  std::map<uint64_t, const ProfiledEvent*> operations;  // by id
  for (const ProfiledEvent& event : profile.operations) {
    if (event.kind == ProfiledKind::kCollective) {
      const CollectiveKey key{event.operation, event.number};
      keys[event.id] = key;
      member.order.push_back(key);
      member.begun[key] = &event;
    } else if (event.kind == ProfiledKind::kProxyOp) {
      if (event.start_ns < since) continue;
      operations[event.id] = &event;
      if (const auto whole = keys.find(event.parent); whole != keys.end()) {
        add_operation(event, parts[whole->second]);
      }
    }
  }
  for (auto& [key, one] : parts) {
    if (one.open > 0) continue;
    if (one.sends > 0) one.part.first_s /= static_cast<double>(one.sends);
    member.parts[key] = one.part;
  }
  add_messages(profile, operations, member);
  return member;
}

}  // namespace

std::map<std::string, std::vector<Member>> communicators(const Job& job) {
  std::map<std::string, std::vector<Member>> found;
  for (const Process& process : job.processes()) {
    for (const Profile& profile : process.profiles) {
      found[profile.communicator].push_back(member_of(process, profile));
    }
  }
  std::erase_if(found, [](const auto& one) { return one.second.size() < 2; });
  return found;
}

}  // namespace pacecar::doctor
