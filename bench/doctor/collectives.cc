#include "bench/doctor/collectives.h"

#include <algorithm>
#include <unordered_map>

namespace pacecar::doctor {
namespace {

constexpr uint64_t kNsOfOneSample = 5'000'000'000;  // the part of the record that counts

double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

struct Parts {
  Part part;
  size_t open = 0;  // operations that have not ended
  size_t sends = 0;
};

void add_operation(const ProfiledEvent& op, Parts& to) {
  to.open += op.stop_ns == 0;
  to.part.began_s = std::min(to.part.began_s, seconds(op.start_ns));
  to.part.ended_s = std::max(to.part.ended_s, seconds(op.stop_ns));
  to.part.detailed = to.part.detailed && op.detailed;
  if (op.sending) {
    ++to.sends;
    to.part.first_s += seconds(op.first_ns);
  }
}

// For each message the time in which this end waits for the network, in the order of the starts.
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

// Those of the operations that began since then: each message is a step of one.
void add_messages(const Profile& profile, uint64_t since_ns, Member& member) {
  std::unordered_map<uint64_t, const ProfiledEvent*> known;
  for (const ProfiledEvent& event : profile.operations) {
    if (event.kind == ProfiledKind::kProxyOp) known[event.id] = &event;
  }
  std::map<std::pair<bool, int64_t>, Intervals> all;
  for (const ProfiledEvent& step : profile.steps) {
    const auto found = known.find(step.parent);
    if (step.kind != ProfiledKind::kProxyStep || found == known.end()) continue;
    const ProfiledEvent& operation = *found->second;
    if (step.stop_ns == 0 || operation.start_ns < since_ns) continue;
    const uint64_t moment = step.moment_ns == 0 ? step.stop_ns : step.moment_ns;
    const uint64_t from = operation.sending ? moment : step.start_ns;
    const uint64_t to = operation.sending ? step.stop_ns : moment;
    if (from <= to) all[{operation.sending, operation.peer}].emplace_back(from, to);
    if (!operation.sending && step.moment_ns != 0) {
      member.taken_s.push_back(seconds(step.stop_ns - std::min(step.moment_ns, step.stop_ns)));
    }
  }
  for (auto& [whose, intervals] : all) {
    std::ranges::sort(intervals);
    (whose.first ? member.sent : member.received)[whose.second] = messages_of(intervals);
  }
}

Member member_of(const Process& process, const Profile& profile) {
  Member member{.process = &process, .profile = &profile};
  const uint64_t since = profile.since_ns != 0             ? profile.since_ns
                         : profile.now_ns > kNsOfOneSample ? profile.now_ns - kNsOfOneSample
                                                           : 0;
  std::map<uint64_t, CollectiveKey> keys;  // by id
  std::map<CollectiveKey, Parts> parts;
  for (const ProfiledEvent& event : profile.operations) {
    if (event.kind == ProfiledKind::kCollective) {
      const CollectiveKey key{event.operation, event.number};
      keys[event.id] = key;
      member.order.push_back(key);
      member.begun[key] = &event;
    } else if (event.kind == ProfiledKind::kProxyOp) {
      const auto whole = keys.find(event.parent);
      if (event.start_ns < since || whole == keys.end()) continue;
      add_operation(event, parts[whole->second]);
    }
  }
  for (auto& [key, one] : parts) {
    if (one.open > 0) continue;
    if (one.sends > 0) one.part.first_s /= static_cast<double>(one.sends);
    member.parts[key] = one.part;
  }
  add_messages(profile, since, member);
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
