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
  if (op.sending) {
    ++to.sends;
    to.part.first_s += seconds(op.first_ns);
    to.part.sent_s[op.peer] += seconds(op.waits.network_ns);
  } else {
    to.part.taken_s += seconds(op.waits.gpu_ns + op.waits.flush_ns);
  }
}

Member member_of(const Process& process, const Profile& profile) {
  Member member{.process = &process, .profile = &profile};
  const uint64_t since = profile.since_ns != 0                 ? profile.since_ns
                         : profile.now_ns > kWithoutSecondLook ? profile.now_ns - kWithoutSecondLook
                                                               : 0;
  std::map<uint64_t, CollectiveKey> keys;  // by id
  std::map<CollectiveKey, Parts> parts;
  std::map<uint64_t, int64_t> peers;  // by id of a sending operation
  for (const ProfiledEvent& event : profile.operations) {
    if (event.kind == ProfiledKind::kCollective) {
      const CollectiveKey key{event.operation, event.number};
      keys[event.id] = key;
      member.order.push_back(key);
      member.begun[key] = &event;
    } else if (event.kind == ProfiledKind::kProxyOp) {
      if (event.start_ns < since) continue;
      if (event.sending) peers[event.id] = event.peer;
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
  for (const ProfiledEvent& step : profile.steps) {
    const auto peer = peers.find(step.parent);
    if (step.kind != ProfiledKind::kProxyStep || step.stop_ns == 0 || peer == peers.end()) continue;
    member.steps_s[peer->second].push_back(seconds(step.waits.network_ns));
  }
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
