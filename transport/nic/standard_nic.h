// A NIC that leaves connecting to its user, as programs of InfiniBand verbs expect: connections of
// standard RC and UC, datagrams (UD), shared receive queues and memory windows. Implemented by the
// software NIC; used by the verbs device.
#pragma once

#include "transport/nic/nic.h"

namespace pacecar {

// What the user of a queue pair may change while it accepts packets.
struct StandardRights {
  Access access = Access::kRemoteAll | Access::kRemoteAtomic;  // the peer's rights to our memory
  uint8_t rnr_delay = 0;   // RNR timer code (table 45): how long the peer waits before a retry
  uint32_t queue_key = 0;  // of UD
};

// The receiving half of a connection of standard RC that its user brings up (InfiniBand
// Architecture Specification vol. 1, 11.2.5.2): the peer and its attributes.
struct StandardPeer {
  FlowId flow = 0;  // whose limits apply to sent packets
  std::array<uint8_t, 16> gid{};
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;  // of its packets to us
  Bytes mtu = 0;           // path MTU, of both ends
  uint8_t read_depth = 1;  // most outstanding reads and atomics of the peer; 0 counts as 1
  StandardRights rights;
  // False: UC. Packets are paced, but not acknowledged: a work request is done when the packet I/O
  // has its packets. A message that does not arrive whole is dropped.
  bool reliable = true;
};

// A memory window: a part of registered memory that peers access by another key.
struct MemoryWindow {
  uint8_t* address = nullptr;
  size_t length = 0;
  uint64_t remote_address = 0;
  uint32_t key = 0;  // chosen by the user
  Access access = Access::kLocalRead;
  // If set, only the peer of this queue pair may use the key, and may invalidate it.
  std::optional<QueuePairId> queue_pair;
  DomainId domain = kNoDomain;
};

// Most outstanding reads and atomics, each way, of a kStandard connection: rdma_rxe's limit.
inline constexpr uint8_t kMostReads = 128;

// The sending half of such a connection.
struct StandardSending {
  uint32_t first_psn = 0;
  uint8_t read_depth = 1;          // most outstanding reads and atomics; 0 counts as 1
  Duration silence_limit;          // a peer that does not answer for this time is dead
  Duration not_ready_limit;        // a peer without receive request for this time is dead
  uint32_t not_ready_retries = 0;  // and only after more RNR NAKs than this
};

// What a queue pair that ends leaves to its user.
struct StandardRest {
  uint64_t done = 0;  // work requests that are done, since it was created or reset
  // For the peer's unfinished message; it is returned once.
  std::optional<ReceiveRequest> receive = std::nullopt;
};

// A message of UD: one packet, which is not acknowledged.
struct Datagram {
  WorkRequest send;  // kSend or kSendWithImm, not longer than caps().mtu
  std::array<uint8_t, 16> gid{};
  uint32_t queue_pair = 0;
  uint32_t queue_key = 0;
};

// Calls with a queue pair: only of Service::kStandard or kDatagram, except post_receives.
class StandardNic : public Nic {
 public:
  // Registers memory with the remote address `remote`. Errors: as register_memory.
  virtual Result<MemoryRegion> register_memory_as(void* address, size_t length, Access access,
                                                  uint64_t remote, DomainId domain) = 0;
  // Errors: kInvalidArgument (as for regions), kUnavailable (no room, or the key is in use).
  virtual Result<void> bind_window(const MemoryWindow& window) = 0;
  virtual void unbind_window(uint32_t key) = 0;  // Has no effect on an unknown key.

  // As post(), for receive requests.
  virtual size_t post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) = 0;
  // Errors: kUnavailable.
  virtual Result<ReceiveQueueId> create_receive_queue(uint32_t receives) = 0;
  virtual void destroy_receive_queue(ReceiveQueueId id) = 0;  // No queue pair may still use it.
  virtual size_t post_shared_receives(ReceiveQueueId id,
                                      std::span<const ReceiveRequest> requests) = 0;

  // Packets of the peer are accepted from here on. Errors: kInvalidArgument (unreachable GID).
  virtual Result<void> connect_standard(QueuePairId id, const StandardPeer& peer) = 0;
  // Work requests may be posted from here on.
  virtual void start_sending(QueuePairId id, const StandardSending& sending) = 0;
  // Datagrams with this queue key are accepted, and datagrams may be posted, from here on.
  virtual void open_datagrams(QueuePairId id, uint32_t queue_key) = 0;
  // For an open or connected queue pair; holds from the next packet on.
  virtual void set_rights(QueuePairId id, const StandardRights& rights) = 0;
  // As post(). A datagram to an unreachable GID is lost.
  virtual size_t post_datagrams(QueuePairId id, std::span<const Datagram> datagrams) = 0;
  // Before the queue pair is reset, or when it is to end or has ended in error.
  virtual StandardRest take_back(QueuePairId id) = 0;
  // Returns the queue pair to its state after creation, with the same number. Work requests are
  // dropped without completions.
  virtual void reset_queue_pair(QueuePairId id) = 0;
  // Breaks the queue pair, as a refusal by the peer does: a kBroken completion follows.
  virtual void break_queue_pair(QueuePairId id) = 0;
};

}  // namespace pacecar
