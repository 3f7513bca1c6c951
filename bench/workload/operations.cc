#include "bench/workload/operations.h"

#include <algorithm>

#include "transport/base/invalid.h"

namespace pacecar {
namespace {

uint32_t slices_of(const WorkloadFlow& flow, Bytes slice) {
  return static_cast<uint32_t>(std::max<Bytes>((flow.bytes + slice - 1) / slice, 1));
}

// Triggers, each with a count of all its firings.
class Firings {
 public:
  explicit Firings(std::vector<WorkloadTrigger>& triggers) : triggers_(triggers) {}

  uint32_t add() {
    triggers_.push_back({.kind = WorkloadTrigger::Kind::kBarrier, .count = 0});
    return static_cast<uint32_t>(triggers_.size() - 1);
  }
  void fire(std::vector<uint32_t>& by, uint32_t trigger) {
    by.push_back(trigger);
    ++triggers_[trigger].count;
  }

 private:
  std::vector<WorkloadTrigger>& triggers_;
};

bool takes_part(uint32_t host, const WorkloadFlow& flow) {
  return host == flow.source || host == flow.destination;
}

}  // namespace

Result<Workload> in_slices(const Workload& whole, Bytes slice) {
  Workload cut{.name = whole.name, .hosts = whole.hosts, .jobs = whole.jobs};
  Firings firings(cut.triggers);
  // By trigger: the slices that wait for it have one each.
  std::vector<std::vector<uint32_t>> parts(whole.triggers.size());
  for (const WorkloadFlow& flow : whole.flows) {
    if (flow.trigger == kNoTrigger) continue;
    if (whole.triggers[flow.trigger].kind == WorkloadTrigger::Kind::kMultiShot) {
      return invalid("flows that start one by one (Multishot) cannot be cut: leave out slice");
    }
    auto& own = parts[flow.trigger];
    while (own.size() < slices_of(flow, slice)) own.push_back(firings.add());
  }
  // Slice i of n fires what waits for it, and the last slice also what waits for later ones.
  const auto fire_parts = [&](const std::vector<uint32_t>& triggers, uint32_t i, uint32_t n,
                              std::vector<uint32_t>& by) {
    for (const uint32_t trigger : triggers) {
      const auto& own = parts[trigger];
      for (uint32_t part = 0; part < own.size(); ++part) {
        if (std::min(part, n - 1) == i) firings.fire(by, own[part]);
      }
      if (i >= own.size() && !own.empty()) firings.fire(by, own.back());
    }
  };
  for (const WorkloadFlow& flow : whole.flows) {
    const uint32_t n = slices_of(flow, slice);
    const size_t first = cut.flows.size();
    for (uint32_t i = 0; i < n; ++i) {
      WorkloadFlow part = flow;
      part.id = cut.flows.size();
      part.bytes = std::min(slice, flow.bytes - slice * i);
      part.on_sent.clear();
      part.on_received.clear();
      fire_parts(flow.on_sent, i, n, part.on_sent);
      fire_parts(flow.on_received, i, n, part.on_received);
      if (flow.trigger != kNoTrigger) part.trigger = parts[flow.trigger][i];
      if (i >= kSlicesUnderWay) {
        if (part.trigger == kNoTrigger) part.trigger = firings.add();
        firings.fire(cut.flows[first + i - kSlicesUnderWay].on_sent, part.trigger);
      }
      cut.flows.push_back(std::move(part));
    }
  }
  return cut;
}

Workload repeated(const Workload& once, uint32_t operations, Duration pause) {
  Workload all{.name = once.name, .hosts = once.hosts, .jobs = once.jobs};
  Firings firings(all.triggers);
  for (uint32_t operation = 0; operation < operations; ++operation) {
    const auto first_trigger = static_cast<uint32_t>(all.triggers.size());
    const size_t first = all.flows.size();
    all.triggers.insert(all.triggers.end(), once.triggers.begin(), once.triggers.end());
    for (WorkloadFlow flow : once.flows) {
      flow.id = all.flows.size();
      flow.operation = operation;
      shift_triggers(flow, first_trigger);
      all.flows.push_back(std::move(flow));
    }
    for (size_t i = first; operation > 0 && i < all.flows.size(); ++i) {
      WorkloadFlow& flow = all.flows[i];
      if (flow.trigger != kNoTrigger) continue;
      flow.trigger = firings.add();
      flow.start = flow.start + pause;
      for (size_t before = first - once.flows.size(); before < first; ++before) {
        WorkloadFlow& ended = all.flows[before];
        if (takes_part(ended.source, flow)) firings.fire(ended.on_sent, flow.trigger);
        if (takes_part(ended.destination, flow)) firings.fire(ended.on_received, flow.trigger);
      }
    }
  }
  return all;
}

}  // namespace pacecar
