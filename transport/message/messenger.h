// Messenger: messages between NICs. Owns the flows of one NIC, the connections that share them, and
// the control words by which the two ends of a flow coordinate. The same over every kind of Nic.
//
// A flow is a (source NIC, destination NIC) pair: one demand, one grant, one congestion controller,
// one queue pair for data and one for control words, however many connections use it. A flow ends a
// while after its last connection was closed by both sides.
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
  uint32_t weight = 1;                            // of flows whose connections name none
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
  uint32_t eager = 0;  // bytes of the largest message that is sent before its buffer is known; only
                       // where the processor reaches all memory that is registered
  bool strict = false;  // a message larger than its buffer fails instead of being cut
};

struct MessengerCounters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t protocol_errors = 0;
};

// What the congestion control has decided for the flow that was used last.
struct FlowReport {
  uint64_t flows = 0;
  TrafficHint hint;  // what the allocator has been told
  uint32_t weight = 0;
  Decision decision;
  Duration rtt;
  Explanation explanation;
};

// Why nothing has moved on a connection although requests wait.
struct Stall {
  Duration lasted;
  uint32_t requests = 0;
  uint32_t writes = 0;       // sending: given to the NIC, and not acknowledged
  bool awaits_peer = false;  // sending: it has posted no buffer; receiving: it has not sent
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
  // What a connection is to those above.
  enum class Role : uint8_t {
    kWhole,
    kLane,  // of several, by notes: it has no eager messages
    kPuts,  // it takes puts: likewise
  };
  // A flow has the largest weight of its connections; 0: MessengerConfig::weight.
  // Errors: kUnavailable (connections, flows or queue pairs used up).
  Result<Offered> open_send(const NicIdentity& peer, Instant now, uint32_t weight = 0,
                            Role role = Role::kWhole);
  // Errors: kPeer for an answer that makes no sense; kStale when the connection's flow has ended.
  Result<void> finish_send(ConnectionId connection, std::span<const uint8_t> answer, Instant now);
  // Errors: kUnavailable as above; kPeer for such an offer; kStale for one of a flow that
  // has ended here.
  Result<Answered> open_receive(std::span<const uint8_t> offer, Instant now);
  // What was offered has come to nothing by this error. True: because of its flow, which has broken
  // or, made by another connection, ended at the peer (kStale): an offer of another one may do. No
  // further connection shares such a flow.
  bool doubt_flow(ConnectionId sender, ErrorCode failure, Instant now);

  // Whether a connection that has been closed still holds its place, for its peer's last word.
  bool releasing_sends() const;
  bool releasing_receives() const;

  // Requests of a closed connection are dropped; nothing waits for the peer. What was done before
  // still reaches it, unless other sends were under way.
  void close_send(ConnectionId connection, Instant now);
  void close_receive(ConnectionId connection, Instant now);
  // Tells the peer that its messages are complete below this slot, whatever this lane has had.
  void close_receive(ConnectionId connection, Instant now, uint64_t completed_slots);

  // --- messages, and puts where the connection is for them; false means "full, again later" ---
  bool send(ConnectionId connection, const SendOperation& operation);
  bool receive(ConnectionId connection, const ReceiveOperation& operation, Instant now);
  // Fails what would still use this memory. The caller deregisters it at the NIC afterwards.
  void forget_memory(uint32_t key);
  // What the application says of the traffic to come, for the allocator. More peers than the NIC
  // can have flows are as good as unknown.
  void hint(const TrafficHint& hint, Instant now);

  // --- a connection that is one lane of several; those above agree by notes what is to be done ---
  // What the peer says; stays where it is as long as the connection. Any thread may read it.
  const NoteWords& note_to_sender(ConnectionId connection) const;
  const NoteWords& note_to_receiver(ConnectionId connection) const;
  // The newest note counts. False: no room, again later. To the receiver it says how many writes
  // have arrived: their completions may not be there yet.
  bool write_to_receiver(ConnectionId sender, LaneNote note);
  bool write_to_sender(ConnectionId receiver, LaneNote note);
  struct LaneSight {
    uint32_t writes = 0;  // at the NIC: of data, or that tell of buffers
    uint64_t life = 0;    // changes whenever the peer has acknowledged any
    bool closed = false;  // by the peer
    MessageFailure failure = MessageFailure::kNone;
  };
  LaneSight send_lane(ConnectionId connection) const;
  LaneSight receive_lane(ConnectionId connection) const;
  // What the peer has said when it closed.
  uint64_t completed_by_peer(ConnectionId sender) const;
  // While held, no more is given to the NIC.
  void hold_sends(ConnectionId connection, bool held);
  // Forgets all sends and goes on with that slot. Only while held, without writes at the NIC.
  void renew_sends(ConnectionId connection, uint64_t next_slot);
  // Forgets all receives; the slots go on where they are. Only when the sender holds its sends.
  void renew_receives(ConnectionId connection, Instant now);
  // Of slots from the oldest that is posted on; see ReceiveQueue::slot_done.
  const ReceiveQueue& receives(ConnectionId connection) const;
  // Takes what has arrived, and then nothing more, on all connections of this one's flow.
  void break_send(ConnectionId connection);
  void break_receive(ConnectionId connection);

  // Takes what has arrived, and moves messages as far as the NIC.
  void poll(Instant now);
  // The part of it for which a receiver may be waiting; true if a message is there.
  bool finish_receives(Instant now);
  // The part of it for which a sender waits: what has been submitted goes as far as the NIC. What
  // that means for the flow is settled by the next poll, if it all fits a packet.
  void hurry_sends(Instant now);
  // Then: what peers are to know by control writes, and housekeeping.
  void inform(Instant now);
  // Fetches into the cache what poll touches, for one who polls many messengers.
  void prepare() const;
  // When poll has something to do by the passing of time alone.
  Instant next_deadline() const;
  // All control words have reached their peers, or will not: the NIC may go.
  bool drained() const;

  const MessengerCounters& counters() const { return counters_; }
  FlowReport report() const;
  // All flows and how they stand: for those who look from time to time.
  std::vector<FlowStatus> flow_statuses(Instant now) const;
  // Why the flow of this sending connection has the rate that it has.
  Explanation explain(ConnectionId connection) const;
  // Smoothed, of this sending connection's flow; 0: unknown.
  Duration rtt(ConnectionId connection) const;
  // Payload that the peer is known to have of all that this sending connection's flow has sent.
  Bytes acknowledged_bytes(ConnectionId connection) const;
  // How often a connection has stalled, or moved again: whoever sees it change looks at his own.
  uint64_t stall_changes() const { return stall_changes_; }
  // nullopt while requests move, or none waits.
  std::optional<Stall> send_stall(ConnectionId connection) const;
  std::optional<Stall> receive_stall(ConnectionId connection) const;
  // What broke the flow of a sending, of a receiving connection, for people; empty: nothing that
  // the failure of its requests does not say.
  std::string send_fault(ConnectionId connection) const;
  std::string receive_fault(ConnectionId connection) const;
  // Memory of one sending flow with its two queue pairs; one that receives takes no more.
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
  void weigh(Flow& flow, Instant now);  // after its connections have changed
  void decide(Flow& flow, Instant now);
  void announce(Flow& flow, Instant now);
  // Announces, and decides if there is anything to send, when this poll has seen all.
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
  Bytes poll_posting(Instant now);
  Bytes post_writes(Sender& sender, Instant now);
  void poll_advertising(Instant now);
  void poll_grants(Instant now);
  void want_slots(Sender& sender);
  void on_arrival(Receiver& receiver, ReceiveQueue::Arrival arrival,
                  const ReceiveQueue::Progress& progress, Instant now);
  void do_housekeeping(Instant now);
  // Each returns whether it is to be looked at again.
  bool do_housekeeping(Sender& sender, Instant now);
  bool do_housekeeping(Receiver& receiver, Instant now);
  bool do_housekeeping(Flow& flow, Instant now);
  bool look_for_close(Receiver& receiver, Instant now);
  void watch(Progress& progress, bool waits, uint64_t moves, Instant now);

  Explanation explain(const Flow& flow) const;
  FlowStatus status(const Flow& flow) const;
  // The peer has posted none for what is to be sent.
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
  AllocatorName obeys_;  // the allocator of which our controllers take grants
  AllocatorName own_allocator_;
  TrafficHint hint_;
  Places<Flow> flows_;                // by FlowId
  std::vector<uint32_t> open_flows_;  // ids
  std::unordered_map<QueuePairId, FlowId> flow_ids_;
  std::unordered_multimap<NicIdentity, FlowId, IdentityHash> flows_with_;  // by peer
  // The words by which the two ends of a flow coordinate, by FlowId: close together, because they
  // are looked at often.
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
  WorkList to_advertise_;                     // receivers with slots that the peer was not told
  WorkList word_pending_;                     // flows with a word to write
  WorkList unsettled_;                        // flows of which something has changed
  // With requests that may be under way, or closed by the application: for the others nothing
  // happens by the passing of time.
  WorkList open_senders_;
  WorkList open_receivers_;
  uint64_t next_flow_number_;
  uint64_t offers_ = 0;
  Instant now_;            // of the last poll
  Instant last_change_;    // when a peer was last seen to have written something, or was awaited
  bool awaiting_ = false;  // a buffer or a word of a peer, that wakes nobody
  Instant next_housekeeping_;
  Instant next_advertising_ = Instant::never();
  uint64_t silent_packets_seen_ = 0;
  uint64_t stall_changes_ = 0;
  bool look_ = true;  // into memory that peers write, although none may have written
  const NicIdentity* data_posted_to_ = nullptr;  // by this poll: the last peer
  bool more_to_post_ = false;
  bool housekeeping_due_ = false;  // something may change by the passing of time alone
  FlowId last_flow_ = 0;
  // What is being looked at, kept so that no poll has to make room for it.
  std::array<Completion, 64> completions_;
  std::array<FlowSignal, 32> signals_;
  std::array<FlowArrival, 32> arrivals_;
  std::array<uint32_t, 32> changed_;
  std::array<GrantUpdate, 32> grants_;
};

}  // namespace pacecar
