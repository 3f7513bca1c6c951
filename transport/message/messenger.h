// Messenger: messages between NICs. Owns the flows of one NIC, the connections that share them, and
// the control words of both. The same over every kind of Nic.
//
// A flow is a (source NIC, destination NIC) pair: one demand, one grant, one congestion controller,
// one queue pair for data and one for control words, however many connections use it. A flow ends
// some time after both sides have closed its last connection.
//
// Pure: no clock, I/O or thread; memory is allocated only when flows and connections are made.
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/allocator.h"
#include "cc/constants.h"
#include "cc/controller_set.h"
#include "cc/host_link.h"
#include "transport/base/fresh_pages.h"
#include "transport/base/work_list.h"
#include "transport/message/flow_status.h"
#include "transport/message/handshake.h"
#include "transport/message/places.h"
#include "transport/message/receive_queue.h"
#include "transport/message/send_queue.h"
#include "transport/message/table_memory.h"
#include "transport/nic/nic.h"

namespace pacecar {

struct MessengerConfig {
  NicIdentity identity{};
  std::string congestion_control = "pace";
  std::vector<NamedValue> constants;              // of the congestion control, in place of its own
  std::string allocator;                          // empty: the one that goes with it
  Rate line_rate;                                 // never 0
  Rate rate_max;                                  // 0: none
  uint32_t weight = 1;                            // of connections that name none
  Rate first_rate;                                // FlowEnvironment::first_rate
  Duration grid_origin;                           // FlowEnvironment's: simulation only
  HostLink* outgoing = nullptr;                   // shared with other processes of the host; they
  HostLink* incoming = nullptr;                   // outlive the messenger
  Duration base_rtt;                              // expected without queues; 0: unknown
  bool trimming = false;                          // switches cut off payloads
  double oversubscription = 1;                    // FlowEnvironment::oversubscription
  uint32_t max_connections = 1024;                // each way, at most Messenger::kMaxConnections
  Duration silence_limit = Duration::from_s(10);  // a peer that is silent for longer is dead
  uint64_t first_flow_number = 0;                 // random
  uint32_t eager = 0;   // bytes of the largest eager message; only where the processor can access
                        // all registered memory
  bool strict = false;  // a message larger than its buffer fails instead of being cut
};

struct MessengerCounters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t protocol_errors = 0;
};

// The congestion control's decision for the flow that was used last.
struct FlowReport {
  uint64_t flows = 0;
  TrafficHint hint;  // the allocator's
  uint32_t weight = 0;
  Decision decision;
  Duration rtt;
  Explanation explanation;
};

// Why a connection with pending requests makes no progress.
struct Stall {
  Duration lasted;
  uint32_t requests = 0;
  uint32_t writes = 0;       // sending: at the NIC, not acknowledged
  bool awaits_peer = false;  // sending: no buffer is posted; receiving: nothing was sent
  Explanation explanation;   // sending
  Duration rtt;
};

using ConnectionId = uint32_t;

class Messenger {
 public:
  static constexpr uint32_t kMaxConnections = 1U << 16;

  // Errors: kInvalidArgument for an unknown congestion control, constant or allocator; kUnavailable
  // when the NIC's memory regions are used up. `nic` outlives the messenger.
  static Result<std::unique_ptr<Messenger>> create(Nic& nic, const MessengerConfig& config,
                                                   Instant now);
  ~Messenger();

  // --- making connections; the bootstrap carries offer and answer ---
  struct Offered {
    ConnectionId connection = 0;
    std::vector<uint8_t> offer;
  };
  struct Answered {
    ConnectionId connection = 0;
    std::vector<uint8_t> answer;
  };
  // What a connection is for the layer above.
  enum class Role : uint8_t {
    kWhole,
    kLane,  // of a bonded connection, with notes; no eager messages
    kPuts,  // for puts; no eager messages
  };
  // A flow has the largest weight of its connections; 0: MessengerConfig::weight.
  // Errors: kUnavailable (connections, flows or queue pairs used up).
  Result<Offered> open_send(const NicIdentity& peer, Instant now, uint32_t weight = 0,
                            Role role = Role::kWhole);
  // Errors: kPeer for a malformed answer; kStale when the connection's flow has ended.
  Result<void> finish_send(ConnectionId connection, std::span<const uint8_t> answer, Instant now);
  // Errors: kUnavailable as above; kPeer for a malformed offer; kStale for a flow that has ended
  // here.
  Result<Answered> open_receive(std::span<const uint8_t> offer, Instant now);
  // An offer has failed with this error. True: its flow is the reason. The flow has broken or, if
  // another connection made it, has ended at the peer (kStale). No further connection shares it,
  // and an offer over another flow may succeed.
  bool doubt_flow(ConnectionId sender, ErrorCode failure, Instant now);

  // Whether a closed connection still holds its place, until its peer has closed, too.
  bool releasing_sends() const;
  bool releasing_receives() const;

  // Requests of a closed connection are dropped, and the call does not wait for the peer. Sends
  // that are done for the application still reach the peer, unless other sends were pending.
  void close_send(ConnectionId connection, Instant now);
  void close_receive(ConnectionId connection, Instant now);
  // Reports to the peer that all messages below this slot are complete, whatever this lane has
  // received.
  void close_receive(ConnectionId connection, Instant now, uint64_t completed_slots);

  // --- messages, and puts on connections for them; false: full, try again later ---
  bool send(ConnectionId connection, const SendOperation& operation);
  bool receive(ConnectionId connection, const ReceiveOperation& operation, Instant now);
  // Fails the requests that would still use this memory. The caller deregisters it afterwards.
  void forget_memory(uint32_t key);
  // The application's hint of the traffic to come, for the allocator. A hint of more peers than the
  // NIC has flows counts as unknown.
  void hint(const TrafficHint& hint, Instant now);

  // --- lanes of a bonded connection; the layer above coordinates them by notes ---
  // The peer's note; its address is valid as long as the connection. Any thread may read it.
  const NoteWords& note_to_sender(ConnectionId connection) const;
  const NoteWords& note_to_receiver(ConnectionId connection) const;
  // The newest note counts. False: no room, try again later. A note to the receiver has the number
  // of writes that have arrived, whose completions may not be polled yet.
  bool write_to_receiver(ConnectionId sender, LaneNote note);
  bool write_to_sender(ConnectionId receiver, LaneNote note);
  struct LaneSight {
    uint32_t writes = 0;  // at the NIC: of data, or of CTS slots
    uint64_t life = 0;    // changes with every acknowledged write
    bool closed = false;  // by the peer
    MessageFailure failure = MessageFailure::kNone;
  };
  LaneSight send_lane(ConnectionId connection) const;
  LaneSight receive_lane(ConnectionId connection) const;
  // The completed slots in the peer's close word.
  uint64_t completed_by_peer(ConnectionId sender) const;
  // While held, nothing more is posted to the NIC.
  void hold_sends(ConnectionId connection, bool held);
  // Drops all sends and continues with that slot. Only while held, without writes at the NIC.
  void renew_sends(ConnectionId connection, uint64_t next_slot);
  // Drops all receives; slot numbers continue. Only when the sender holds its sends.
  void renew_receives(ConnectionId connection, Instant now);
  // For the state of slots from the oldest posted one on: see ReceiveQueue::slot_done.
  const ReceiveQueue& receives(ConnectionId connection) const;
  // Takes what has arrived, then breaks the connection's flow: nothing more is taken on any of its
  // connections.
  void break_send(ConnectionId connection);
  void break_receive(ConnectionId connection);

  // Takes what has arrived, and posts messages to the NIC.
  void poll(Instant now);
  // The part of poll() that a receiver waits for; true if a message has completed.
  bool finish_receives(Instant now);
  // The part of poll() that a sender waits for: submitted sends are posted to the NIC. If no sender
  // has posted more than a packet, the next poll updates demand and limits.
  void hurry_sends(Instant now);
  // After poll(): control writes (CTS slots, grants, demands) and housekeeping.
  void inform(Instant now);
  // Prefetches what poll touches, for a caller with many messengers.
  void prepare() const;
  // When poll has something to do even if nothing arrives.
  Instant next_deadline() const;
  // All control words have reached their peers or never will: the NIC may be destroyed.
  bool drained() const;

  const MessengerCounters& counters() const { return counters_; }
  FlowReport report() const;
  // The status of all flows: for metrics and reports.
  std::vector<FlowStatus> flow_statuses(Instant now) const;
  // Why the flow of this sending connection has its rate.
  Explanation explain(ConnectionId connection) const;
  // Smoothed, of this sending connection's flow; 0: unknown.
  Duration rtt(ConnectionId connection) const;
  // Acknowledged payload of this sending connection's flow, ever.
  Bytes acknowledged_bytes(ConnectionId connection) const;
  // Counts stalls and their ends, of all connections: when it changes, check your connections.
  uint64_t stall_changes() const { return stall_changes_; }
  // nullopt while requests make progress, or none is pending.
  std::optional<Stall> send_stall(ConnectionId connection) const;
  std::optional<Stall> receive_stall(ConnectionId connection) const;
  // What broke the flow of a sending, of a receiving connection, as text; empty: no more than the
  // failure of its requests says.
  std::string send_fault(ConnectionId connection) const;
  std::string receive_fault(ConnectionId connection) const;
  // Memory of a sending flow with its two queue pairs; a receiving flow takes no more.
  QueuePairMemory flow_memory() const;

 private:
  struct IdentityHash {  // identities are random
    size_t operator()(const NicIdentity& identity) const {
      const auto halves = std::bit_cast<std::array<uint64_t, 2>>(identity);
      return halves[0] ^ halves[1];
    }
  };
  struct Flow;
  struct Progress;
  struct Sender;
  struct Receiver;

  Messenger(Nic& nic, const MessengerConfig& config, std::unique_ptr<Allocator> allocator,
            std::unique_ptr<ControllerSet> controllers, Instant now);
  static FlowEnvironment environment(const Nic& nic, const MessengerConfig& config);

  // flows
  Result<Flow*> make_flow(bool sending, const NicIdentity& peer, uint64_t number);
  Flow* find_flow(bool sending, const NicIdentity& peer, std::optional<uint64_t> number);
  Result<void> join(Flow& flow, const FlowEnd& remote, Instant now);
  void leave(Flow& flow, Instant now);
  void destroy_flow(Flow& flow);
  void destroy_queue_pairs(const Flow& flow);
  Flow* flow_of(QueuePairId queue_pair) const;
  void break_flow(Flow& flow, MessageFailure failure);
  bool takes_number(const Flow& flow, const Offer& offer) const;
  void take_number(Flow& flow, const Offer& offer, ConnectionId receiver);
  void weigh(Flow& flow, Instant now);  // after a change of its connections
  void decide(Flow& flow, Instant now);
  void announce(Flow& flow, Instant now);
  // Queues a flow for settle(), which sends its demand and, if `decides` and there is a backlog,
  // decides its limits: once per poll, not once per event.
  void settle_later(Flow& flow, bool decides);
  void settle(Instant now);
  void on_grant(Flow& flow, uint64_t word, Instant now);
  uint64_t grant_word(const Flow& flow) const;
  Bytes write_bytes(const Flow& flow) const;
  void queue_word(const Flow& flow, uint64_t word);
  void post_word(Flow& flow, Instant now);
  bool post_control(Flow& flow, const WorkRequest& write);

  // poll, part by part
  void poll_completions(Instant now);
  void on_sent(const Completion& completion);
  void on_broken(const Completion& completion);
  void on_received(const Completion& completion, Instant now);
  void poll_signals(Instant now);
  void poll_arrivals(Instant now);
  void report_counts(Instant now);
  void poll_changed(Instant now);
  void on_signal(Flow& flow, const FlowSignal& signal, Instant now);
  bool memory_changed();
  void note_waiting(Instant now);
  void poll_flow_words(Instant now);
  void poll_matching(Instant now);
  // Returns the most that one sender has posted.
  Bytes poll_posting();
  Bytes post_writes(Sender& sender);
  void poll_advertising(Instant now);
  void poll_grants(Instant now);
  void want_slots(Sender& sender);
  void on_arrival(Receiver& receiver, ReceiveQueue::Arrival arrival,
                  const ReceiveQueue::Progress& progress, Instant now);
  void do_housekeeping(Instant now);
  // Each returns whether it must be called again.
  bool do_housekeeping(Sender& sender, Instant now);
  bool do_housekeeping(Receiver& receiver, Instant now);
  bool do_housekeeping(Flow& flow, Instant now);
  bool look_for_close(Receiver& receiver, Instant now);
  void watch(Progress& progress, bool waits, uint64_t moves, Instant now);

  Explanation explain(const Flow& flow) const;
  FlowStatus status(const Flow& flow) const;
  // A send waits for a buffer of the peer.
  static bool awaits_buffer(const Sender& sender);

  void break_now(Flow& flow);
  void fail_connection(Sender& sender, MessageFailure failure);
  void fail_connection(Receiver& receiver, MessageFailure failure);
  void release(const Sender& sender, Instant now);
  void release(const Receiver& receiver, Instant now);
  void send_close(Sender& sender);
  void send_close(Receiver& receiver);

  Nic& nic_;
  MessengerConfig config_;
  MessengerCounters counters_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<ControllerSet> controllers_;
  AllocatorName obeys_;  // the allocator whose grants our controllers obey
  AllocatorName own_allocator_;
  TrafficHint hint_;
  Places<Flow> flows_;                // by FlowId
  std::vector<uint32_t> open_flows_;  // ids
  std::unordered_map<QueuePairId, FlowId> flow_ids_;
  std::unordered_multimap<NicIdentity, FlowId, IdentityHash> flows_with_;  // by peer
  // Grant and demand words, by FlowId: close together, because they are polled often.
  OwnPages<uint64_t> words_;
  std::span<uint64_t> words_in_;      // written by the peer
  std::span<uint64_t> words_out_;     // source of our own writes
  std::vector<uint64_t> words_seen_;  // of words_in_
  MemoryRegion words_out_region_;
  TableMemory<SendTable> send_tables_;        // by ConnectionId
  TableMemory<ReceiveTable> receive_tables_;  // by ConnectionId
  Places<Sender> senders_;                    // by ConnectionId
  Places<Receiver> receivers_;                // by ConnectionId
  WorkList matching_;                         // senders with sends that wait for a buffer
  WorkList posting_;                          // senders with writes to post
  WorkList to_advertise_;                     // receivers with unadvertised slots
  WorkList word_pending_;                     // flows with a word to write
  WorkList unsettled_;                        // flows that settle() must visit
  // Connections with pending requests, or closed by the application: only these need housekeeping.
  WorkList open_senders_;
  WorkList open_receivers_;
  uint64_t next_flow_number_;
  uint64_t offers_ = 0;
  Instant now_;            // of the last poll
  Instant last_change_;    // when a peer's write was last seen, or first awaited
  bool awaiting_ = false;  // a control write that does not wake the engine
  Instant next_housekeeping_;
  Instant next_advertising_ = Instant::never();
  uint64_t silent_packets_seen_ = 0;
  uint64_t stall_changes_ = 0;
  bool look_ = true;  // poll memory that peers write, whatever the NIC has counted
  const NicIdentity* data_posted_to_ = nullptr;  // by this poll: the last peer
  bool more_to_post_ = false;
  bool housekeeping_due_ = false;  // some connection or flow needs it
  FlowId last_flow_ = 0;
  // Buffers of one poll, members so that no poll has to allocate them.
  std::array<Completion, 64> completions_;
  std::array<FlowSignal, 32> signals_;
  std::array<FlowArrival, 32> arrivals_;
  std::array<uint32_t, 32> changed_;
  std::array<GrantUpdate, 32> grants_;
};

}  // namespace pacecar
