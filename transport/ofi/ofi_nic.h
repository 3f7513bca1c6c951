// OfiNic: a NIC on the reliable datagrams and remote writes of a libfabric provider. Its endpoints
// serve all queue pairs; the two ends of a queue pair agree by messages (mailbox.h). Work requests
// wait here until the flow's limits allow each write.
// Thread rule: one thread at a time, except wait_fd().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/fresh_pages.h"
#include "transport/base/work_list.h"
#include "transport/nic/paced/paced_nic.h"
#include "transport/ofi/domain.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/operations.h"
#include "transport/ofi/queue_pair.h"
#include "transport/ofi/registrations.h"

namespace pacecar {

struct OfiConfig {
  std::string name;  // as shown to users: "ofi:tcp:eth0"
  uint32_t flows = 256;
  uint32_t queue_pairs = 512;
  uint32_t regions = 4096;
  uint32_t paths = 1;  // endpoints for data
  Bytes chunk = 0;     // most that one write should carry; 0: chosen by the provider's traits
  Rate line_rate;      // 0: the provider's speed
  Duration silence_limit = Duration::from_s(6);  // a peer that is silent for this time is dead
  Address address;                               // of this host, for the bootstrap
  // How a peer is notified of writes with immediate; nothing: the provider's best way.
  std::optional<OfiNotification> notification;
};

class OfiNic final : public PacedNic<OfiQueuePair> {
 public:
  // Where a processor moves the data, writes are larger: each costs more than fine pacing gains.
  static constexpr Bytes kDefaultChunk = 64 << 10;
  static constexpr Bytes kSoftwareChunk = 512 << 10;

  static Result<std::unique_ptr<OfiNic>> open(const OfiConfig& config, OfiProvider provider,
                                              Instant now);  // Errors: what the provider refuses.
  ~OfiNic() override;

  const OfiProvider& provider() const { return domain_.provider(); }
  // Closes all endpoints, which ends all use of memory, and opens new ones; breaks all queue pairs.
  void reopen_endpoints(const std::string& why);

  // --- Nic ---
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override {
    return memory_.add(address, length, access);
  }
  Result<MemoryRegion> register_dmabuf(const DmaBufMemory& memory, Access access) override {
    return memory_.add_dmabuf(memory, access);
  }
  // Waits for the provider, and for peers that may write there; after a time reopens the endpoints.
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override;
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override;
  QueuePairAddress queue_pair_address(QueuePairId id) const override;
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override;
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override;
  void halt_queue_pair(QueuePairId id) override;
  void destroy_queue_pair(QueuePairId id) override;

  // --- NicPort ---
  size_t receive(Instant now) override;
  void on_time(Instant now) override;
  size_t transmit(Instant now) override;
  Instant next_deadline() const override;
  bool prepare_to_wait(Instant now) override;
  int wait_fd() const override { return domain_.wait_fd(); }

 private:
  using QueuePair = OfiQueuePair;

  OfiNic(const OfiConfig& config, OfiDomain domain, Instant now);
  Result<void> open_endpoints();
  void close_endpoints();
  static NicCaps make_caps(const OfiConfig& config, const OfiDomain& domain);

  // --- queue pairs ---
  void break_queue_pair(QueuePair& qp, CompletionStatus status, std::string fault);
  void break_queue_pair(QueuePair& qp, CompletionStatus status, std::string_view what,
                        std::string_view cure);
  void break_queue_pair(QueuePair& qp, const OfiFailure& failure);
  OfiPlace place_of(const QueuePair& qp) const { return {domain_.name(), qp.peer}; }
  // Ends an operation at the provider, and returns its queue pair; nullptr: that is gone.
  QueuePair* end_operation(void* context, OfiOperation* ended);
  void release_window(const OfiOperation& operation);
  void step_leaving(QueuePair& qp);  // Sends kGone when nothing of ours is outstanding.
  void sweep();
  void forget(uint32_t slot);

  // --- memory ---
  // Drives the provider and the messages until `done()`; false: not within the limit.
  bool wait_until(Duration limit, const std::function<bool()>& done);
  void revoke(QueuePair& qp, uint32_t key);
  bool may_write(const QueuePair& qp) const;  // Whether the peer may still write to our memory.

  // --- receiving ---
  void on_entry(const fi_cq_data_entry& entry, Instant now);
  void on_failure(const OfiDomain::Failed& failed);
  void finish(QueuePair& qp, uint64_t number, CompletionStatus status);
  size_t take_messages(QueuePair& qp);
  void on_protocol_error(QueuePair& qp, std::string_view what = "the peer breaks the protocol");
  void on_message(QueuePair& qp, const OfiMessage& message);
  void on_ask(QueuePair& qp, uint32_t key);
  void on_region(QueuePair& qp, const OfiMessage& message);

  // --- sending ---
  const WorkRequest* waiting(uint32_t slot) const override;
  void wake(QueuePair& qp) override {
    prepare_waiting(qp);
    PacedNic::wake(qp);
  }
  void prepare_waiting(QueuePair& qp);
  size_t transmit_messages();
  bool send_message(QueuePair& qp, const OfiQueuePair::QueuedMessage& queued);
  void queue_message(QueuePair& qp, const OfiMessage& message,
                     uint64_t finishes = OfiQueuePair::kNoNumber, uint8_t endpoint = 0);
  size_t send(QueuePair& qp, PacedFlows::Turn* turn) override;
  // False: nothing was posted to the provider.
  bool start(QueuePair& qp, uint8_t endpoint, PacedFlows::Turn* turn);
  // Posts a write and, if there is one, a message behind it. nullptr: the provider refuses it.
  OfiOperation* hand_over(QueuePair& qp, OfiOperation::Kind kind, uint8_t endpoint, OfiWrite write,
                          const OfiMessage* message);
  void on_refused(QueuePair& qp, int error);  // The provider does not take the operation.
  void block(QueuePair& qp);
  void unblock(QueuePair& qp);
  // Unblocks the queue pairs in blocked_ that are `meant`, in the order in which they were blocked.
  void unblock_if(const std::function<bool(const QueuePair&)>& meant);
  void on_room(QueuePair& qp);
  void retry_blocked(Instant now);
  void set_time(Instant now);
  void watch(Instant now);

  OfiConfig config_;
  // Each member is made from those before it.
  OfiDomain domain_;
  OfiEndpoints endpoints_;
  const OfiNotification notification_;
  OfiRegistrations memory_;
  OwnPages<OfiRings> rings_;                            // by slot
  std::vector<OfiRegistrations::Region> ring_regions_;  // of each slot's latest queue pair
  std::optional<uint32_t> retiring_;                    // the key that is being deregistered
  std::vector<uint32_t> live_;  // slots of queue pairs that are connected, broken or leaving
  OfiOperations operations_;
  WorkList with_messages_;               // slots of queue pairs with messages to send
  WorkList blocked_;                     // slots of queue pairs that the provider has no room for
  WorkList leaving_;                     // slots of queue pairs that may have finished leaving
  Instant retry_at_ = Instant::never();  // the first of blocked_
  Instant next_watch_;
  bool failed_ = false;  // opening endpoints has failed
};

}  // namespace pacecar
