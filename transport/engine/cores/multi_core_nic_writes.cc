// MultiCoreNic: passes writes and limits to the cores, and takes their completions and signals.
#include <algorithm>

#include "transport/engine/cores/multi_core_nic.h"

namespace pacecar {
namespace {

// How long a core's round trip and its last acknowledgement count.
constexpr Duration kRecent = Duration::from_ms(1);

}  // namespace

const NicCounters& MultiCoreNic::counters() const {
  counters_ = first_.counters();
  for (const auto& core : further_) core->count(counters_);
  return counters_;
}

void MultiCoreNic::report_arrivals(bool wanted) {
  first_.report_arrivals(wanted);
  for (auto& core : further_) {
    core->exclusively([wanted](SoftNic& nic) { nic.report_arrivals(wanted); });
  }
}

size_t MultiCoreNic::post(QueuePairId id, std::span<const WorkRequest> work_requests) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return first_.post(id, work_requests);
  size_t taken = 0;
  while (taken < work_requests.size() && post_one(*qp, work_requests[taken])) ++taken;
  return taken;
}

// All writes are signaled on the core, so that the core's backlog is known here.
bool MultiCoreNic::post_one(QueuePair& qp, const WorkRequest& work_request) {
  if (qp.state == QueuePair::State::kBroken || qp.work.size() == qp.work_requests) return false;
  const FlowId id = qp.config.flow;
  Flow& flow = this->flow(id);
  const auto lanes = static_cast<uint32_t>(qp.lanes.size());
  const Bytes bytes = work_request.length;
  const uint32_t chosen = flow.division.choose(bytes, flow.limits.rate, lanes);
  Lane& lane = qp.lanes[chosen];
  WorkRequest write = work_request;
  write.signaled = true;
  // A core that had nothing of this flow gets its limits before the write.
  if (flow.division.on_posted(chosen, bytes)) divide(id);
  const bool taken =
      chosen == 0 ? first_.post(lane.id, {&write, 1}) == 1 : core(chosen).post(lane.id, write);
  if (!taken) {
    if (flow.division.on_done(chosen, bytes)) undivided_.add(id);
    return false;
  }
  handed_over_ &= chosen == 0;
  qp.work.post({&work_request, 1});
  lane.writes.push(qp.work.start());
  return true;
}

size_t MultiCoreNic::poll(std::span<Completion> completions) {
  size_t count = 0;
  size_t polled = 0;
  do {
    polled = first_.poll(completions.subspan(count));
    for (Completion completion : completions.subspan(count, polled)) {
      if (take(0, completion)) completions[count++] = completion;
    }
  } while (polled > 0);
  for (uint32_t i = 1; i < cores(); ++i) {
    while (count < completions.size() && core(i).poll(completions[count])) {
      if (take(i, completions[count])) ++count;
    }
  }
  while (count < completions.size() && !done_.empty()) {
    if (queue_pairs_[done_.front()]->pop_completion(&completions[count])) {
      ++count;
    } else {
      done_.take();
    }
  }
  return count;
}

bool MultiCoreNic::take(uint32_t index, Completion& completion) {
  QueuePair* qp = index == 0 ? find(completion.queue_pair) : find(index, completion.queue_pair);
  // A queue pair without lanes is on the first core only: its completion passes unchanged. A
  // completion of another core belongs to a queue pair that is gone.
  if (qp == nullptr) return index == 0;
  if (qp->state == QueuePair::State::kBroken) return false;
  completion.queue_pair = qp->id;
  switch (completion.kind) {
    case CompletionKind::kSent: {
      FixedQueue<uint64_t>& writes = qp->lanes[index].writes;
      const uint64_t number = writes.front();
      writes.pop_front();
      qp->work.finish(number, completion.status);
      const FlowId id = qp->config.flow;
      if (flow(id).division.on_done(index, qp->work.request(number).length)) undivided_.add(id);
      break;
    }
    case CompletionKind::kBroken:
      qp->state = QueuePair::State::kBroken;
      qp->broken_lane = index;
      qp->broken_by = completion.status;
      break;
    default: return true;
  }
  done_.add(first_.slot_of(qp->id));
  return false;
}

size_t MultiCoreNic::poll_signals(std::span<FlowSignal> signals) {
  size_t count = first_.poll_signals(signals);
  for (FlowSignal& signal : signals.first(count)) merge(signal, 0);
  for (uint32_t i = 1; i < cores(); ++i) {
    while (count < signals.size() && core(i).poll(signals[count])) merge(signals[count++], i);
  }
  return count;
}

// A core knows only its own packets. A delay on one core only does not come from the network, and
// the division handles it. So the least of the cores' recent round trips counts, and a timeout
// counts only if no other core had an acknowledgement lately.
void MultiCoreNic::merge(FlowSignal& signal, uint32_t index) {
  Flow& flow = this->flow(signal.flow);
  CoreOfFlow& own = flow.cores[index];
  own.in_flight = signal.in_flight;
  own.sent = signal.sent;
  if (signal.acked > 0) own.acked_at = now_;
  if (signal.rtt > Duration()) {
    own.rtt = signal.rtt;
    own.rtt_at = now_;
  }
  flow.division.on_sent(index, signal.sent);
  flow.division.on_acked(index, signal.acked, now_);
  signal.in_flight = signal.sent = 0;
  for (const CoreOfFlow& core : std::span(flow.cores).first(cores())) {
    signal.in_flight += core.in_flight;
    signal.sent += core.sent;
    if (signal.rtt > Duration() && now_ - core.rtt_at < kRecent) {
      signal.rtt = std::min(signal.rtt, core.rtt);
    }
    if (&core != &own && now_ - core.acked_at < kRecent) signal.timed_out = false;
  }
}

size_t MultiCoreNic::poll_arrivals(std::span<FlowArrival> arrivals) {
  size_t count = first_.poll_arrivals(arrivals);
  for (uint32_t i = 1; i < cores(); ++i) {
    while (count < arrivals.size() && core(i).poll(arrivals[count])) ++count;
  }
  return count;
}

void MultiCoreNic::set_flow_limits(FlowId id, const FlowLimits& limits, Instant now) {
  now_ = now;
  Flow& flow = this->flow(id);
  flow.limits = limits;
  ++flow.limits_version;
  divide(id);
  // The limits may be sent again later, for another division: the alignment must not be repeated.
  flow.limits.aligned = false;
  flow.limits.grid = {};
}

void MultiCoreNic::divide(FlowId id) {
  Flow& flow = this->flow(id);
  for (uint32_t i = 0; i < cores(); ++i) {
    if (!flow.division.busy(i)) continue;
    const uint32_t part = flow.division.part(i);
    CoreOfFlow& core = flow.cores[i];
    const bool known = core.version == flow.limits_version && core.part == part;
    if (known && flow.limits.credit == kNoCredit) continue;
    if (!send_limits(i, id, flow.division.limits(i, flow.limits))) {
      undivided_.add(id);
      continue;
    }
    core.version = flow.limits_version;
    core.part = part;
  }
}

bool MultiCoreNic::send_limits(uint32_t index, FlowId id, const FlowLimits& limits) {
  if (index > 0) return core(index).limit(id, limits, now_);
  first_.set_flow_limits(id, limits, now_);
  return true;
}

void MultiCoreNic::hand_over() {
  for (size_t left = undivided_.size(); left > 0; --left) divide(undivided_.take());
  handed_over_ = true;
  for (auto& core : further_) handed_over_ &= core->hand_over();
}

}  // namespace pacecar
