// An endpoint: the front of its parts. It hands calls of the application and frames of peers to the
// part that handles them, gives all parts their turns, and fails peers that are lost. Thread rule:
// bind() to cancel() and flush() take the domain's lock; all others are called with it held.
#pragma once

#include "net_plugin/libfabric/endpoint/connector.h"
#include "net_plugin/libfabric/endpoint/initiator.h"
#include "net_plugin/libfabric/endpoint/receiver.h"
#include "net_plugin/libfabric/endpoint/target.h"

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
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int bind(struct fid* other, uint64_t flags);
  int enable();
  int set_name(const void* address, size_t bytes);
  int get_name(void* address, size_t* bytes) const;
  ssize_t cancel(void* context);
  void progress();
  // Whether peers wait for this endpoint's progress, whatever the application does.
  bool owes_progress() const;
  // Called before a thread sleeps: peers on this host wake it. False: the next turn has work to do.
  bool prepare_to_rest();
  bool reaches(const MemoryRegion& region) { return state_.operations.reach(region); }
  void forget(MemoryRegion& region) {
    target_.forget(region);
    receiver_.forget(region);
  }
  void flush();  // Waits until all frames and puts are sent, for a limited time, and sends kBye.

  // Each returns 0 or a negative fi_errno; -FI_EAGAIN: no room now.
  ssize_t start(const OperationRequest& request);
  ssize_t receive(const ReceiveRequest& request);

  uint64_t tx_flags() const { return tx_.op_flags; }
  uint64_t rx_flags() const { return rx_.op_flags; }
  size_t inject_bytes() const { return tx_.inject_size; }
  size_t& min_multi_receive() { return receiver_.min_multi_receive; }
  Domain& domain() const { return state_.domain; }

 private:
  using Clock = Connector::Clock;

  void poll_nic();
  // Reads at most kMaxMessages messages, so that other peers get their turn. False: there was none.
  bool read_frames(Peer& peer, IncomingStream& stream);
  bool read_message(Peer& peer, IncomingStream& stream);
  FrameResult on_frame(Peer& peer, const IncomingStream& stream, const FrameView& view);
  void send_to(Peer& peer);
  void fail_lost_peers();
  void fail_peer(Peer& peer, const Failure& failure);

  const uint64_t caps_;
  const fi_tx_attr tx_;
  const fi_rx_attr rx_;
  Address wanted_name_;
  AttendedTime attended_{clock_now(), Duration::from_ms(50)};
  size_t next_to_poll_ = 0;
  uint32_t shared_turns_ = 0;       // left in which frames through shared memory are expected
  uint32_t turns_without_nic_ = 0;  // since its last poll

  EndpointState state_;
  Connector connector_;
  BulkTransfers bulk_{state_};
  Initiator initiator_;
  Receiver receiver_;
  Target target_{state_, bulk_};
};

}  // namespace pacecar::fabric
