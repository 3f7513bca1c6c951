// Datagrams: a queue pair of unreliable datagrams (UD; InfiniBand Architecture Specification vol.
// 1, 9.8.3). It has the datagrams that wait to be sent, and places received ones. Each message is
// one unacknowledged packet: it is done when the packet I/O has it. Pure. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/fixed_queue.h"
#include "transport/nic/standard_nic.h"
#include "transport/softnic/memory_table.h"
#include "transport/wire/roce.h"

namespace pacecar {

class Datagrams {
 public:
  struct Config {
    uint32_t queue_pair = 0;
    uint32_t queue_key = 0;
    uint32_t first_psn = 0;
    uint32_t work_requests = 0;
    uint32_t scope_id = 0;         // of link-local peers
    bool ports_by_number = false;  // of peers: SoftNicConfig::port_slot
  };
  explicit Datagrams(const Config& config);

  uint32_t queue_key() const { return config_.queue_key; }
  void set_queue_key(uint32_t key) { config_.queue_key = key; }
  size_t post(std::span<const Datagram> datagrams);
  bool idle() const { return pending_.empty(); }
  uint64_t done() const { return popped_ + done_; }

  // The next packet and its destination, valid until pop_done() returns its send; false: none.
  // Datagrams whose memory is deregistered are skipped; they complete with kMemoryGone.
  struct Outgoing {
    roce::Packet packet;
    const Address* destination = nullptr;
  };
  bool next_packet(const MemoryTable& memory, Outgoing* out);
  // The oldest send whose packet the packet I/O has; false: none. In order.
  bool pop_done(WorkRequest* send, CompletionStatus* status);
  // The packet I/O has all packets that next_packet() has returned.
  void on_handed_over() { done_ = sent_; }

  // Places the datagram behind its GRH; false: not enough room, or no right to write.
  static bool place(const Address& source, const Address& destination, const roce::Packet& packet,
                    const ReceiveRequest& receive, const MemoryTable& memory);

 private:
  struct Pending {
    Datagram datagram;
    Address destination;
    bool failed = false;
  };

  Config config_;
  uint32_t psn_;
  FixedQueue<Pending> pending_;
  uint64_t popped_ = 0;
  size_t sent_ = 0;  // of `pending_`, from the front
  size_t done_ = 0;
};

}  // namespace pacecar
