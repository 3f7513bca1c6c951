#include "bench/sim/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Least time between two entries of a flow's rate in the trace, except when the flow ends.
constexpr Duration kTraceInterval = Duration::from_us(1);
constexpr int64_t kSmallestChange = 100;  // of a rate: a hundredth

bool changed(const Explanation& before, const Explanation& now) {
  const auto difference = static_cast<int64_t>(now.rate.bps() - before.rate.bps());
  return now.limited_by != before.limited_by ||
         std::abs(difference) * kSmallestChange > static_cast<int64_t>(before.rate.bps());
}

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path) {
  std::unique_ptr<TraceFile> made(new TraceFile(path));
  if (made->file_) return made;
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write the trace '{}': {}", path, std::strerror(errno)));
}

void TraceFile::write(Duration time, std::string_view event, std::string_view what,
                      uint64_t number) {
  file_ << fmt::format("{{\"time_ns\": {}, \"event\": \"{}\", \"{}\": {}}}\n", time.ns(), event,
                       what, number);
}

void TraceFile::write_rate(Duration time, uint64_t flow, const Explanation& why) {
  if (rates_ > kMostRates) return;
  if (rates_++ == kMostRates) return write(time, "rates-left-out", "flow", flow);
  file_ << fmt::format(
      "{{\"time_ns\": {}, \"event\": \"rate\", \"flow\": {}, \"rate_bps\": {}, "
      "\"limited_by\": \"{}\", \"grant_bps\": {}, \"grant_age_ns\": {}, \"epoch\": {}, "
      "\"phase_ns\": {}, \"share_bps\": {}, \"core_bps\": {}, \"budget_bps\": {}}}\n",
      time.ns(), flow, why.rate.bps(), to_string(why.limited_by), why.grant.bps(),
      why.grant_age.ns(), why.epoch, why.phase.ns(), why.share.bps(), why.core.bps(),
      why.rate_max.bps());
}

Result<void> TraceFile::close() {
  if (file_.flush()) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write the trace '{}': is its disk full?", path_));
}

Traffic::Traffic(EventLoop& loop, const Workload& workload, uint32_t hosts, bool receives_posted,
                 TraceFile* trace)
    : loop_(loop),
      workload_(workload),
      receives_posted_(receives_posted),
      trace_(trace),
      timer_(loop.add_timer(*this, 0)),
      peers_(hosts),
      connection_of_(workload.flows.size()),
      triggers_(workload.triggers.size()),
      sends_(std::make_unique<MessageSend[]>(workload.flows.size())),
      sending_(hosts),
      receiving_(hosts),
      results_(workload.flows.size()),
      left_(workload.flows.size()) {
  for (uint32_t i = 0; i < workload.flows.size(); ++i) {
    const WorkloadFlow& flow = workload.flows[i];
    results_[i] = {.id = flow.id,
                   .source = flow.source,
                   .destination = flow.destination,
                   .job = flow.job,
                   .operation = flow.operation,
                   .bytes = flow.bytes};
    total_bytes_ += flow.bytes;
    if (flow.trigger != kNoTrigger) triggers_[flow.trigger].waiting.push_back(i);
  }
  make_connections();
  if (trace_ != nullptr) traced_.resize(connections_.size());
}

void Traffic::make_connections() {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> by_pair;
  for (uint32_t i = 0; i < workload_.flows.size(); ++i) {
    const WorkloadFlow& flow = workload_.flows[i];
    const auto next = static_cast<uint32_t>(connections_.size());
    const auto [found, added] = by_pair.try_emplace({flow.source, flow.destination}, next);
    if (added) {
      connections_.emplace_back().source = flow.source;
      connections_.back().destination = flow.destination;
      ++peers_[flow.source].to;
      ++peers_[flow.destination].from;
    }
    connection_of_[i] = found->second;
    Connection& connection = connections_[found->second];
    connection.flows.push_back(i);
    connection.largest = std::max(connection.largest, flow.bytes);
    if (flow.trigger != kNoTrigger) connection.order_known = false;
  }
  for (Connection& connection : connections_) {
    std::ranges::stable_sort(connection.flows, {},
                             [this](uint32_t flow) { return workload_.flows[flow].start; });
    connection.ring = std::min<uint32_t>(kReceivesAhead, connection.flows.size());
    connection.receives = std::make_unique<MessageReceive[]>(connection.ring);
  }
}

Result<void> Traffic::set_up(Hosts& hosts) {
  hosts_ = &hosts;
  for (Connection& connection : connections_) {
    SimHost& from = *hosts[connection.source];
    SimHost& to = *hosts[connection.destination];
    ASSIGN_OR_RETURN(const auto offered, from.messenger().open_send(to.identity(), loop_.now()));
    ASSIGN_OR_RETURN(const auto answered, to.messenger().open_receive(offered.offer, loop_.now()));
    RETURN_IF_ERROR(from.messenger().finish_send(offered.connection, answered.answer, loop_.now()));
    connection.send = offered.connection;
    connection.receive = answered.connection;
    if (receives_posted_) post_receives(connection);
    from.wake();
    to.wake();
  }
  return {};
}

void Traffic::begin() {
  begin_ = loop_.now();
  for (uint32_t i = 0; i < workload_.flows.size(); ++i) {
    if (workload_.flows[i].trigger == kNoTrigger) schedule(i, begin_);
  }
}

void Traffic::schedule(uint32_t flow, Instant from) {
  starts_.emplace(from + workload_.flows[flow].start, flow);
  loop_.arm(timer_, starts_.begin()->first);
}

void Traffic::on_event(Instant now, uint32_t) {
  while (!starts_.empty() && starts_.begin()->first <= now) {
    start(starts_.extract(starts_.begin()).mapped(), now);
  }
  if (!starts_.empty()) loop_.arm(timer_, starts_.begin()->first);
}

void Traffic::start(uint32_t flow, Instant now) {
  Connection& connection = connections_[connection_of_[flow]];
  results_[flow].start = now - begin_;
  trace_flow("start", flow, now);
  ++connection.started;
  connection.unposted.push_back(flow);
  post_receives(connection);
  post_sends(connection);
}

// Posts receives for all flows, or for the started flows, as far as the ring has room.
void Traffic::post_receives(Connection& connection) {
  const uint64_t wanted = receives_posted_ ? connection.flows.size() : connection.started;
  SimHost& host = *(*hosts_)[connection.destination];
  const MemoryRegion& payload = host.payload();
  while (connection.receives_posted < wanted &&
         connection.receives_posted - connection.received < connection.ring) {
    MessageReceive& request = connection.receives[connection.receives_posted % connection.ring];
    request.set(MessageRequest::State::kPending);
    const uint32_t flow = connection.flows[connection.receives_posted];
    const Bytes size = connection.order_known ? workload_.flows[flow].bytes : connection.largest;
    request.clear();
    request.add(payload.address, size, 0, {payload.remote_address, payload.key});
    PACECAR_CHECK(host.messenger().receive(connection.receive, request, loop_.now()));
    ++connection.receives_posted;
    host.wake();
  }
}

void Traffic::post_sends(Connection& connection) {
  SimHost& host = *(*hosts_)[connection.source];
  const MemoryRegion& payload = host.payload();
  while (!connection.unposted.empty()) {
    const uint32_t flow = connection.unposted.front();
    MessageSend& send = sends_[flow];
    send.set(MessageRequest::State::kPending);
    send.operation = {payload.address, workload_.flows[flow].bytes, 0, payload.key};
    if (!host.messenger().send(connection.send, send)) return;
    connection.unposted.pop_front();
    connection.sent.push_back(flow);
    sending_[connection.source].push_back(flow);
    host.wake();
    if (connection.awaited) continue;
    connection.awaited = true;
    receiving_[connection.destination].push_back(connection_of_[flow]);
  }
}

// Collects completed receives. Triggers that fire here may append to receiving_[host].
void Traffic::collect_received(uint32_t host, Instant now) {
  std::vector<uint32_t>& waiting = receiving_[host];
  for (size_t i = 0; i < waiting.size();) {
    Connection& connection = connections_[waiting[i]];
    while (!connection.sent.empty() &&
           connection.receives[connection.received % connection.ring].state() ==
               MessageRequest::State::kDone) {
      const uint32_t flow = connection.sent.front();
      connection.sent.pop_front();
      ++connection.received;
      post_receives(connection);
      results_[flow].received = now - begin_;
      arrived_bytes_ += workload_.flows[flow].bytes;
      if (results_[flow].done()) --left_;
      trace_flow("received", flow, now);
      for (const uint32_t trigger : workload_.flows[flow].on_received) fire(trigger, now);
    }
    if (!connection.sent.empty()) {
      ++i;
      continue;
    }
    connection.awaited = false;
    waiting[i] = waiting.back();
    waiting.pop_back();
  }
}

// Collects completed sends.
void Traffic::collect_sent(uint32_t host, Instant now) {
  std::vector<uint32_t> ended;
  std::erase_if(sending_[host], [&](uint32_t flow) {
    if (sends_[flow].state() == MessageRequest::State::kPending) return false;
    ended.push_back(flow);
    return true;
  });
  for (const uint32_t flow : ended) {
    post_sends(connections_[connection_of_[flow]]);
    if (sends_[flow].state() != MessageRequest::State::kDone) continue;  // stays undone
    results_[flow].finish = now - begin_;
    if (results_[flow].received != Duration::max()) --left_;
    trace_flow("finish", flow, now);
    trace_rate(flow, now);
    for (const uint32_t trigger : workload_.flows[flow].on_sent) fire(trigger, now);
  }
}

void Traffic::fire(uint32_t number, Instant now) {
  const WorkloadTrigger& trigger = workload_.triggers[number];
  TriggerState& state = triggers_[number];
  const uint64_t firing = ++state.fired;
  if (trace_ != nullptr) trace_->write(now - begin_, "trigger", "trigger", number);
  const auto release = [&](uint32_t flow) {
    if (workload_.flows[flow].start == Duration()) {
      start(flow, now);
    } else {
      schedule(flow, now);
    }
  };
  if (trigger.kind == WorkloadTrigger::Kind::kMultiShot) {
    if (firing <= state.waiting.size()) release(state.waiting[firing - 1]);
    return;
  }
  const uint64_t wanted = trigger.kind == WorkloadTrigger::Kind::kBarrier ? trigger.count : 1;
  if (firing != wanted) return;
  for (const uint32_t flow : state.waiting) release(flow);
}

Explanation Traffic::explain(uint32_t flow) const {
  const FlowResult& result = results_[flow];
  if (result.start == Duration::max() || result.done()) {
    return {.limited_by = LimitedBy::kApplication};
  }
  const Connection& connection = connections_[connection_of_[flow]];
  return (*hosts_)[connection.source]->messenger().explain(connection.send);
}

// Traces one flow of each connection: the first that is not acknowledged, which sends.
void Traffic::on_step(uint32_t host, Instant now, bool messages) {
  if (trace_ != nullptr) {
    for (const uint32_t flow : sending_[host]) {
      Traced& traced = traced_[connection_of_[flow]];
      if (now < traced.next) continue;
      traced.next = now + kTraceInterval;
      trace_rate(flow, now);
    }
  }
  if (!messages) return;
  collect_received(host, now);
  collect_sent(host, now);
}

void Traffic::trace_rate(uint32_t flow, Instant now) {
  if (trace_ == nullptr) return;
  Traced& traced = traced_[connection_of_[flow]];
  const Explanation why = explain(flow);
  if (traced.flow == flow && !changed(traced.why, why)) return;
  traced.flow = flow;
  traced.why = why;
  trace_->write_rate(now - begin_, results_[flow].id, why);
}

void Traffic::trace_flow(std::string_view event, uint32_t flow, Instant now) {
  if (trace_ != nullptr) trace_->write(now - begin_, event, "flow", results_[flow].id);
}

}  // namespace pacecar
