// ConnectionEnds: what SendSide and ReceiveSide have in common. Each end of a connection has a
// table that the peer writes, and writes close words and notes into the peer's table.
// End is SendEnd or ReceiveEnd: a ConnectionEnd with a `queue`, the types of its own Table and of
// PeerTable, and kSide, the number in the WorkId of its writes.
// Pure; one thread. Memory is allocated only when a connection is made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "transport/base/fresh_pages.h"
#include "transport/base/return_if_error.h"
#include "transport/base/work_list.h"
#include "transport/message/control_words.h"
#include "transport/message/control_writes.h"
#include "transport/message/eager.h"
#include "transport/message/flow_table.h"
#include "transport/message/lane.h"
#include "transport/message/message_request.h"
#include "transport/message/progress_watch.h"

namespace pacecar {

struct ConnectionEnd {
  ConnectionId id = 0;
  MessageFlow* flow = nullptr;
  uint32_t number = 0;  // in the flow
  uint32_t weight = 1;
  FreshPages memory;  // the table, and behind it the cells of eager messages
  MemoryRegion table_region;
  RemoteAddress remote_table;  // the table of the peer
  uint32_t notes_outstanding = 0;
  uint64_t notes_done = 0;
  MessageFailure failure = MessageFailure::kNone;
  ProgressWatch progress;
  bool preposted = false;  // its receives are always posted: waiting for a message is not a stall
  bool closed = false;     // by the application
  bool close_sent = false;
  bool close_outstanding = false;
  bool peer_closed = false;

  bool failed() const { return failure != MessageFailure::kNone; }
};

inline auto flow_ended() {
  return fail(ErrorCode::kStale,
              "the flow that this connection was to share has ended: connect again");
}

template <typename End>
class ConnectionEnds : public Lanes {
 public:
  // The references outlive it. `now`: the time of the last poll.
  ConnectionEnds(Nic& nic, const MessengerConfig& config, const Instant& now,
                 MessengerCounters& counters, ControlWrites& control, RateControl& rates,
                 FlowTable& flows)
      : nic_(nic),
        config_(config),
        now_(now),
        counters_(counters),
        control_(control),
        rates_(rates),
        flows_(flows),
        ends_(config.max_connections),
        attended_(config.max_connections) {}

  const MessageFlow& flow(ConnectionId id) const { return *ends_[id].flow; }
  MessageFlow& flow(ConnectionId id) { return *ends_[id].flow; }
  const NoteWords& peer_note(ConnectionId id) const override { return ends_[id].table->peer_note; }
  std::string fault(ConnectionId id) const override { return flow(id).fault; }
  std::string peer_address(ConnectionId id) const override { return flow(id).peer_address; }
  void add_line(ConnectionId id, std::shared_ptr<PeerLine> line) override {
    flow(id).watch.add_line(std::move(line), flow(id).sending);
  }
  // Some end has pending requests or is closed by the application: housekeeping visits only these.
  bool housekeeping_due() const { return !attended_.empty(); }
  // Whether a closed end still holds its place, until its peer has closed, too.
  bool releasing() const {
    bool any = false;
    for_attended([&any](const End& end) { any |= end.closed; });
    return any;
  }
  // All close words have reached their peers or never will.
  bool drained() const {
    bool all = true;
    for_attended([&all](const End& end) {
      const bool sent = end.close_sent && !end.close_outstanding;
      all &= !end.closed || sent || end.flow->state != FlowState::kOpen;
    });
    return all;
  }

  // The peer keeps its table until both have closed: if it refuses the write, it has closed.
  void on_close_sent(ConnectionId id, bool ok) {
    ends_[id].close_outstanding = false;
    if (!ok) ends_[id].peer_closed = true;
  }
  void on_note_done(ConnectionId id, bool ok) {
    --ends_[id].notes_outstanding;
    if (ok) ++ends_[id].notes_done;
  }

 protected:
  using Table = typename End::Table;
  using PeerTable = typename End::PeerTable;

  // --- from the first call to the last ---
  // An end with a table, for add() or discard(). Errors: kUnavailable (no connection or region).
  Result<std::unique_ptr<End>> make() {
    if (ends_.full()) {
      return pacecar::fail(
          ErrorCode::kUnavailable,
          "all connections of the NIC are used: close some or raise PACECAR_MAX_CONNECTIONS");
    }
    auto end = std::make_unique<End>();
    const Bytes bytes = sizeof(Table) + EagerCells(config_.eager).bytes();
    end->id = ends_.next();
    end->memory = make_fresh_pages(bytes);
    end->table = reinterpret_cast<Table*>(end->memory.get());
    ASSIGN_OR_RETURN(end->table_region,
                     nic_.register_memory(end->table, bytes, Access::kRemoteWrite));
    return end;
  }
  void discard(const End& end) { nic_.deregister_memory(end.table_region); }
  // Its flow, number and weight are known.
  End& add(std::unique_ptr<End> made, Instant now) {
    End& end = ends_.add(std::move(made));
    ++end.flow->connections;
    if (end.weight > end.flow->weight) weigh(*end.flow, now);
    return end;
  }
  void release(const End& end, Instant now) {
    MessageFlow& flow = *end.flow;
    const uint32_t weight = end.weight;
    flow.sending ? flow.numbered.remove(end.number) : flow.numbered.take(end.number, end.id);
    attended_.remove(end.id);
    discard(end);
    ends_.remove(end.id);
    if (weight > 1 && weight == flow.weight) weigh(flow, now);
    flows_.release(flow, now);
  }
  uint8_t* cells(const End& end) { return end.memory.get() + sizeof(Table); }

  // --- housekeeping ---
  template <typename Call>
  void for_attended(Call call) const {
    for (size_t i = 0; i < attended_.size(); ++i) call(ends_[attended_[i]]);
  }
  // Calls visit(end) for each; it returns whether housekeeping must visit that end again.
  template <typename Visit>
  void visit_attended(Visit visit) {
    for (size_t left = attended_.size(); left > 0; --left) {
      const ConnectionId id = attended_.take();
      if (visit(ends_[id])) attended_.add(id);
    }
  }
  // Both sides' part of a visit: releases a closed end without outstanding writes, and watches the
  // others' progress. `closing`: the peer has closed, but not all that it sent has arrived.
  bool supervise(End& end, bool writes_outstanding, bool closing, Instant now) {
    const bool agreed = end.close_sent && !end.close_outstanding && end.peer_closed;
    const bool under_way = writes_outstanding || end.notes_outstanding > 0;
    if (end.closed && ((agreed && !under_way) || end.flow->state == FlowState::kBroken)) {
      release(end, now);
      return false;
    }
    const bool waits = !end.queue.idle() && !end.failed();
    if (!end.failed() && !end.closed) {
      end.progress.update(waits && !end.preposted, end.queue.moves(), now);
      if (const auto stalled = stall(end.id)) end.flow->stall.add(*stalled);
    }
    const bool busy = end.closed || waits || closing;
    if (busy) end.flow->active = true;
    return busy;
  }

  // --- control writes from our table into the peer's ---
  WorkRequest table_write(const End& end, WorkId::Kind kind, const void* from, Bytes length,
                          size_t offset) const {
    return {.id = WorkId{kind, end.id, End::kSide}.pack(),
            .local = static_cast<const uint8_t*>(from),
            .remote = end.remote_table.address + offset,
            .length = length,
            .local_key = end.table_region.key,
            .remote_key = end.remote_table.key,
            .host = true};
  }
  void post_close(End& end, uint64_t count) {
    if (end.close_sent || end.flow->state != FlowState::kOpen) return;
    end.table->own_close = CloseWord::pack(count);
    end.close_sent = end.close_outstanding =
        control_.post(*end.flow, table_write(end, WorkId::Kind::kClose, &end.table->own_close,
                                             sizeof(uint64_t), offsetof(PeerTable, peer_close)));
  }
  bool post_note(End& end, const LaneNote& note) {
    if (end.flow->state != FlowState::kOpen) return false;
    end.table->own_note = seal(note);
    const bool posted =
        control_.post(*end.flow, table_write(end, WorkId::Kind::kNote, &end.table->own_note,
                                             sizeof(NoteWords), offsetof(PeerTable, peer_note)));
    if (posted) ++end.notes_outstanding;
    return posted;
  }
  // As NicQueuePairs::silence.
  Duration silence_of(const MessageFlow& flow) const {
    return std::max(nic_.silence(flow.data, now_), nic_.silence(flow.control, now_));
  }
  uint64_t peer_close(const End& end) const { return load_polled(end.table->peer_close); }

  Nic& nic_;
  const MessengerConfig& config_;
  const Instant& now_;
  MessengerCounters& counters_;
  ControlWrites& control_;
  RateControl& rates_;
  FlowTable& flows_;
  Places<End> ends_;  // by ConnectionId
  WorkList attended_;

 private:
  // The flow has the largest weight of its connections.
  void weigh(MessageFlow& flow, Instant now) {
    uint32_t weight = 1;
    for (const ConnectionId id : flow.numbered.all()) {
      if (id != FlowConnections::kNone) weight = std::max(weight, ends_[id].weight);
    }
    rates_.set_weight(flow, weight, now);
  }
};

}  // namespace pacecar
