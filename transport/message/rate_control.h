// RateControl: how fast each flow may send. Carries the NIC's signals to the controllers of sending
// flows and to the allocator of receiving ones, their demands and grants to the peers, and their
// decisions to the NIC. Pure; one thread.
#pragma once

#include <array>
#include <memory>

#include "cc/allocator.h"
#include "cc/controller_set.h"
#include "transport/base/work_list.h"
#include "transport/message/control_writes.h"
#include "transport/message/flow.h"
#include "transport/message/messenger_config.h"
#include "transport/message/places.h"
#include "transport/nic/nic.h"

namespace pacecar {

// The two halves of a congestion control, for the flows of one NIC.
struct CongestionControl {
  std::unique_ptr<ControllerSet> controllers;
  std::unique_ptr<Allocator> allocator;
  AllocatorName obeys{};  // the allocator whose grants the controllers obey
  AllocatorName own{};    // the name of `allocator`
};

class RateControl {
 public:
  // Errors: kInvalidArgument for an unknown congestion control, constant or allocator.
  static Result<CongestionControl> make(const NicQueuePairs& nic, const MessengerConfig& config);
  RateControl(NicQueuePairs& nic, const MessengerConfig& config, ControlWrites& control,
              CongestionControl congestion_control);  // The references outlive it.

  const AllocatorName& obeys() const { return congestion_.obeys; }
  const AllocatorName& own_allocator() const { return congestion_.own; }

  // A flow that is open now, and its end. remove_flow() ignores one that was not added.
  void add_flow(MessageFlow& flow, Instant now);
  void remove_flow(MessageFlow& flow, Instant now);
  void set_weight(MessageFlow& flow, uint32_t weight, Instant now);

  // Bytes that posted receives will accept, and bytes of posted receives that are complete:
  // arrived, cancelled, or never sent.
  void on_posted(const MessageFlow& flow, Bytes bytes, Instant now) {
    if (flow.obeys) congestion_.allocator->on_posted(now, flow.id, bytes);
  }
  void on_finished(const MessageFlow& flow, Bytes bytes, Instant now) {
    if (flow.obeys) congestion_.allocator->on_finished(now, flow.id, bytes);
  }
  // The peer has written this word: a grant, or a demand.
  void on_word(MessageFlow& flow, uint64_t word, Instant now);
  void on_grant(MessageFlow& flow, uint64_t word, Instant now);
  // Data writes have been posted to the NIC; one of them is done.
  void on_writes_posted(MessageFlow& flow, uint32_t writes, Bytes bytes);
  void on_write_done(MessageFlow& flow);
  // A hint of more peers than the NIC has flows counts as unknown.
  void hint(const TrafficHint& hint, Instant now);

  void poll_signals(const Places<MessageFlow>& flows, Instant now);
  void poll_arrivals(const Places<MessageFlow>& flows, Instant now);
  // Flows whose demand or limits others' events or the time have changed.
  void poll_changed(const Places<MessageFlow>& flows, Instant now);
  void poll_grants(Instant now);
  // Sends the demand of each flow that has had an event, and decides its limits if it has a
  // backlog: once per poll, not once per event.
  void decide_pending(const Places<MessageFlow>& flows, Instant now);
  // For an open flow, at times: a grant may have expired.
  void do_housekeeping(MessageFlow& flow, Instant now);

  // The grant in force for a sending peer; a flow of another allocator, or none, has the line rate.
  uint64_t grant_word(MessageFlow& flow) const;
  Bytes write_bytes(const MessageFlow& flow) const;  // The size of a write at the flow's rate.
  Explanation explain(const MessageFlow& flow, Instant now) const;
  const TrafficHint& hint() const { return hint_; }
  FlowId last_flow() const { return last_flow_; }  // with a signal
  // Changes of FlowFacts::path_mtu: the flows since the last call, and the number of all.
  std::vector<FlowFacts> take_changed_paths() { return std::exchange(changed_paths_, {}); }
  uint64_t path_changes() const { return path_changes_; }
  Instant next_deadline() const;

 private:
  void on_signal(MessageFlow& flow, const FlowSignal& signal, Instant now);
  void decide(MessageFlow& flow, Instant now);
  void announce(const MessageFlow& flow, Instant now);
  void decide_later(MessageFlow& flow, bool decides);  // `decides`: its limits may change, too.
  void report_counts(Instant now);

  NicQueuePairs& nic_;
  const MessengerConfig& config_;
  ControlWrites& control_;
  CongestionControl congestion_;
  TrafficHint hint_;
  Duration least_rtt_ = Duration::max();
  WorkList undecided_;  // flows that decide_pending() must visit
  FlowId last_flow_ = 0;
  std::vector<FlowFacts> changed_paths_;
  uint64_t path_changes_ = 0;
  // Buffers of one poll, members so that no poll has to make them.
  std::array<FlowSignal, 32> signals_;
  std::array<FlowArrival, 32> arrivals_;
  std::array<uint32_t, 32> changed_;
  std::array<GrantUpdate, 32> grants_;
};

}  // namespace pacecar
