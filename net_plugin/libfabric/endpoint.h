// An endpoint: its peers, its outstanding operations, and its posted receives.
// Thread rule: bind() to cancel() and flush() take the domain's lock; all others are called with
// that lock held.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "net_plugin/libfabric/core/operation_table.h"
#include "net_plugin/libfabric/peer.h"

namespace pacecar::fabric {

// The tables of the calls that start operations: transfer_calls.cc.
extern fi_ops_msg message_calls;
extern fi_ops_tagged tagged_calls;
extern fi_ops_rma rma_calls;
extern fi_ops_atomic atomic_calls;

class Endpoint : public fid_ep {
 public:
  Endpoint(Domain& domain, const fi_info& info);
  ~Endpoint();

  int bind(struct fid* other, uint64_t flags);
  int enable();
  int set_name(const void* address, size_t bytes);
  int get_name(void* address, size_t* bytes) const;
  ssize_t cancel(void* context);
  void progress();
  bool has_unsent_frames() const;
  // Called before a thread sleeps: peers on this host wake it. False: the next turn has work to do.
  bool prepare_to_rest();
  void forget(const MemoryRegion& region);
  // Waits until all frames and puts are sent, for a limited time, and sends kBye.
  void flush();

  // Each returns 0 or a negative fi_errno; -FI_EAGAIN: no room now.
  ssize_t start(const OperationRequest& request);
  ssize_t post(bool with_tag, const Pattern& pattern, const Receive& receive);
  // FI_PEEK, FI_CLAIM and FI_DISCARD of tagged receives.
  ssize_t peek(const Pattern& pattern, const Receive& receive);
  ssize_t post_claimed(const Receive& receive);

  // nullopt: the address vector has no such address.
  std::optional<PeerId> peer_number(fi_addr_t address);
  bool directed() const { return (caps_ & FI_DIRECTED_RECV) != 0; }
  uint64_t tx_flags() const { return tx_flags_; }
  uint64_t rx_flags() const { return rx_flags_; }
  size_t inject_bytes() const { return inject_bytes_; }
  bool enabled() const { return bootstrap_ != nullptr; }

  Domain& domain() const { return domain_; }
  size_t min_multi_receive = 64;

 private:
  using Clock = EndpointBootstrap::Clock;

  using Messages = Matcher<Receive, Unexpected>;

  // kNoRoom: the frame is handled again later. kProtocolError: the peer fails.
  enum class FrameResult : uint8_t { kHandled, kNoRoom, kProtocolError };

  // endpoint_peers.cc
  Peer& peer_named(const Address& name);
  std::deque<PendingCompletion> reset(Peer& peer);
  bool admits(const Address& name) const;
  uint64_t source_of(Peer& peer);
  void call(Peer& peer);
  void hand_memory_over(Peer& peer, EndpointBootstrap::CallId call);
  Greeting greeting_for(const Peer& peer) const;
  void fail_peer_later(Peer& peer, DelayedFailure failure);
  void cannot_send(Peer& peer, const Error& why);
  void progress_connections();
  void on_event(const EndpointBootstrap::Event& event);
  void on_greeting(const EndpointBootstrap::Event& event);
  void finish_connect(Peer& peer);
  void finish_connect_puts(Peer& peer);
  void accept_unidentified();
  void identify_connections();
  void fail_peer(Peer& peer, int error, const std::string& why);
  void forget_messages_of(const Peer& peer);

  // endpoint_send.cc
  bool make_room(const Peer& peer, size_t payload);
  // Takes a free operation. Requires one. A bounce buffer takes the place of `local`.
  Operation& begin(Peer& peer, Operation::Kind kind, const Local& local = {},
                   std::unique_ptr<Bounce> bounce = nullptr);
  ssize_t start_from_host(const OperationRequest& request, Peer& peer);
  ssize_t start_eagerly(const OperationRequest& request, Peer& peer);
  ssize_t start_offered(const OperationRequest& request, Peer& peer);
  ssize_t start_read(const OperationRequest& request, Peer& peer);
  ssize_t start_atomic(const OperationRequest& request, Peer& peer);
  PendingCompletion completion_for(const OperationRequest& request) const;
  void start_sending(Peer& peer, Outbox::Coming coming);
  std::optional<size_t> describe_segments(Operation& operation);
  Result<const Memory*> memory_for(Operation& operation, size_t piece, size_t nic);
  void start_queued_reads(Peer& peer);
  void start_queued_puts(Peer& peer);
  void put_all(Operation& operation);
  void end_if_done(Operation& operation);
  void end(Operation& operation, int error = 0, const std::string& why = {});
  void release(Operation& operation);

  // endpoint_receive.cc
  FrameResult on_message(Peer& peer, const FrameView& view);
  void fail_receive(Messages& messages, Messages::Receives::iterator at, int error,
                    const std::string& why);
  Receive take_receive(Messages& messages, Messages::Receives::iterator at, uint64_t length);
  Unexpected take_unexpected(Messages& messages, Messages::Messages::iterator at);
  void receive_message(Peer& peer, const FrameView& view, const Receive& receive);
  void receive_offered(Peer& peer, const FrameView& view, const Receive& receive,
                       PendingCompletion pending);
  void clear_to_send(Operation& operation);
  PendingCompletion receive_completion(const Frame& frame, const Receive& receive, Peer& from);
  void discard(const Unexpected& message);

  // endpoint_frames.cc
  // Reads at most kMaxMessages messages, so that other peers get their turn. False: there was none.
  bool read_frames(Peer& peer, IncomingStream& stream);
  bool read_message(Peer& peer, IncomingStream& stream);
  FrameResult on_frame(Peer& peer, const IncomingStream& stream, const FrameView& view);
  struct Target {
    Status status = Status::kOk;
    Local memory;

    MemoryRegion& region() const { return *memory.regions[0]; }
  };
  FrameResult on_request(Peer& peer, const FrameView& view);
  Target resolve_target(const Frame& frame, uint64_t access) const;
  // Each returns the status to reply; nullopt: the reply is sent, or follows later.
  std::optional<Status> on_write(Peer& peer, const FrameView& view, const Target& target);
  std::optional<Status> on_write_offer(Peer& peer, const FrameView& view, const Target& target);
  std::optional<Status> on_read(Peer& peer, const FrameView& view, const Target& target);
  std::optional<Status> on_atomic(Peer& peer, const FrameView& view, const Target& target);
  void report_remote_access(MemoryRegion& region, const Frame& frame, Peer& from, uint64_t kind);
  void reply(Peer& peer, Frame frame, std::span<const uint8_t> payload = {});
  void reply_status(Peer& peer, uint64_t id, Status status);
  FrameResult on_clear_to_send(Peer& peer, const FrameView& view);
  FrameResult on_placed(const Peer& peer, const Frame& frame);
  void on_all_bytes(Operation& operation);
  FrameResult on_done(const Peer& peer, const FrameView& view);

  // endpoint_memory.cc
  // The bytes of an offer: reads them from the peer's memory, or asks the peer to put them.
  void fetch(Operation& operation, const FrameView& offer);
  void start_direct_read(Operation& operation);
  void continue_direct_reads(Peer& peer);
  void finish_direct_read(Operation& operation, bool whole);
  void reply_with_segments(Peer& peer, const Frame& request, const Local& memory);
  void on_direct_reply(Operation& operation, const FrameView& reply);

  // endpoint.cc
  void poll_nic();
  void report(PendingCompletion& pending, CompletionQueue* queue);
  void count(uint64_t what, bool failed);
  bool receives_full() const;

  Domain& domain_;
  uint64_t caps_;
  uint64_t tx_flags_;
  uint64_t rx_flags_;
  size_t tx_size_;
  size_t rx_size_;
  size_t inject_bytes_;
  Address wanted_name_;
  Address name_;
  uint64_t instance_;

  AddressVector* vector_ = nullptr;
  EventQueue* events_ = nullptr;
  CompletionQueue* tx_queue_ = nullptr;
  CompletionQueue* rx_queue_ = nullptr;
  bool tx_selective_ = false;
  bool rx_selective_ = false;
  std::map<uint64_t, Counter*> counters_;  // by event: one FI_ bit each

  std::unique_ptr<EndpointBootstrap> bootstrap_;
  std::unique_ptr<Listener> listener_;
  AttendedTime attended_{std::chrono::milliseconds(50)};
  Clock::time_point polled_at_{};

  std::deque<std::unique_ptr<Peer>> peers_;
  std::map<Address, Peer*, AddressOrder> peers_by_name_;
  std::vector<PeerId> peers_by_address_;  // a cache of the address vector, of cached_version_
  uint64_t cached_version_ = 0;
  size_t next_to_poll_ = 0;
  uint32_t shared_turns_ = 0;       // left in which frames through shared memory are expected
  uint32_t turns_without_nic_ = 0;  // since its last poll
  // An accepted connection without a kHello yet: the peer is unknown.
  struct Unidentified {
    std::unique_ptr<Inbox> inbox;
    Clock::time_point begun;
  };
  std::vector<Unidentified> unidentified_;

  static constexpr uint32_t kMaxOperations = 1 << 16;
  static constexpr uint32_t kMaxServedPerPeer = 1024;  // so that a peer leaves room for others
  static constexpr size_t kMaxUnprovenOfHost = 1024;   // peers of one host: see admits()
  static constexpr size_t kMaxUnproven = 4096;         // likewise, of all hosts
  static constexpr size_t kMaxCalls = 8;               // TCP connections of one peer
  static constexpr size_t kMaxUnidentified = 64;       // connections, with an inbox each
  static constexpr size_t kMaxUnexpectedBytes = size_t{256} << 20;  // bytes of unexpected messages
  OperationTable<Operation> operations_{kMaxOperations};
  uint32_t initiated_ = 0;  // operations that this endpoint has initiated
  Messages untagged_;
  Messages tagged_;
  size_t unexpected_bytes_ = 0;
};

}  // namespace pacecar::fabric
