// Drives a workload: opens a connection for every pair of hosts with a flow, posts receives, and
// posts each send in the instant in which its start time has come or its trigger fires.
//
// Sends and receives of a connection match in the order of their posting. Up to kReceivesAhead
// receives are posted ahead. If no flow of a pair has a trigger, their order is known, and each
// receive has its flow's size; otherwise each has the size of the pair's largest flow.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/sim_host.h"
#include "bench/workload/workload.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/message/messenger.h"
#include "transport/sim/event_loop.h"

namespace pacecar {

// A file with the events of a run, one JSON object per line: starts, arrivals and ends of flows,
// triggers, faults, and changes of a flow's rate or limit. Times are in nanoseconds since time 0.
class TraceFile {
 public:
  static constexpr uint64_t kMostRates = 1'000'000;  // some 200 MB

  // Errors: kSystem, naming the file.
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path);

  void write(Duration time, std::string_view event, std::string_view what, uint64_t number);
  // After kMostRates rates, one line "rates-left-out" follows, and no further rate.
  void write_rate(Duration time, uint64_t flow, const Explanation& why);
  // Errors: kSystem, when not all could be written.
  Result<void> close();

 private:
  explicit TraceFile(const std::string& path) : path_(path), file_(path) {}

  std::string path_;
  std::ofstream file_;
  uint64_t rates_ = 0;
};

class Traffic final : public EventSink {
 public:
  using Hosts = std::vector<std::unique_ptr<SimHost>>;
  // Most receives that a connection has posted at once. One packet advertises them all, so more
  // would enlarge the fabric's packet buffers.
  static constexpr uint32_t kReceivesAhead = 8;

  // All outlive the traffic; `trace` may be null.
  Traffic(EventLoop& loop, const Workload& workload, uint32_t hosts, bool receives_posted,
          TraceFile* trace);

  // The number of hosts that a host sends to and receives from.
  struct Peers {
    uint32_t to = 0;
    uint32_t from = 0;
  };
  Peers peers(uint32_t host) const { return peers_[host]; }

  // Opens the connections and posts the receives. Errors: as for the hosts' calls.
  Result<void> set_up(Hosts& hosts);
  // Time 0 is now.
  void begin();

  bool done() const { return left_ == 0; }
  Bytes arrived_bytes() const { return arrived_bytes_; }
  Bytes total_bytes() const { return total_bytes_; }
  // Flows in the order of the workload; `ideal` is not filled.
  const std::vector<FlowResult>& results() const { return results_; }

  // Why this flow has its rate. A flow that is not under way is limited by the application.
  Explanation explain(uint32_t flow) const;

  void on_event(Instant now, uint32_t what) override;       // flows to start
  void on_step(uint32_t host, Instant now, bool messages);  // SimHost::Listener

 private:
  struct Connection {
    uint32_t source = 0;
    uint32_t destination = 0;
    ConnectionId send = 0;
    ConnectionId receive = 0;
    std::vector<uint32_t> flows;  // in the order of their start, as far as known
    Bytes largest = 0;
    bool order_known = true;
    std::deque<uint32_t> unposted;               // started, but the connection took no more sends
    std::deque<uint32_t> sent;                   // posted, not yet received, in order
    std::unique_ptr<MessageReceive[]> receives;  // a ring
    uint32_t ring = 0;
    uint64_t receives_posted = 0;
    uint64_t received = 0;
    uint64_t started = 0;
    bool awaited = false;  // in receiving_ of its destination
  };
  // The last rate of a connection in the trace.
  struct Traced {
    uint32_t flow = ~0U;
    Explanation why;
    Instant next;
  };
  struct TriggerState {
    std::vector<uint32_t> waiting;  // flows
    uint64_t fired = 0;
  };

  void make_connections();
  void post_receives(Connection& connection);
  void post_sends(Connection& connection);
  void schedule(uint32_t flow, Instant from);
  void start(uint32_t flow, Instant now);
  void fire(uint32_t trigger, Instant now);
  void collect_received(uint32_t host, Instant now);
  void collect_sent(uint32_t host, Instant now);
  void trace_flow(std::string_view event, uint32_t flow, Instant now);
  void trace_rate(uint32_t flow, Instant now);

  EventLoop& loop_;
  const Workload& workload_;
  bool receives_posted_;
  TraceFile* trace_;
  EventLoop::TimerId timer_;
  Hosts* hosts_ = nullptr;
  Instant begin_;
  std::vector<Peers> peers_;
  std::vector<Connection> connections_;
  std::vector<uint32_t> connection_of_;  // by flow
  std::vector<Traced> traced_;           // by connection, where there is a trace
  std::vector<TriggerState> triggers_;
  std::unique_ptr<MessageSend[]> sends_;          // by flow
  std::vector<std::vector<uint32_t>> sending_;    // by host: flows that are not acknowledged
  std::vector<std::vector<uint32_t>> receiving_;  // by host: connections with flows under way
  std::vector<FlowResult> results_;
  std::multimap<Instant, uint32_t> starts_;  // flows by their time, in the order of schedule()
  size_t left_ = 0;                          // flows that are not done at both ends
  Bytes arrived_bytes_ = 0;
  Bytes total_bytes_ = 0;
};

}  // namespace pacecar
