// The receiving half of a queue pair of standard RC: takes requests in the order of their sequence
// numbers, each once, places what they carry, and answers (InfiniBand Architecture Specification
// vol. 1, 9.7.4, 9.7.5 and 9.9).
//
// Answers leave in the order of the requests: an acknowledgement never overtakes the response to an
// earlier read. Every packet's key, bounds and rights are checked before a byte is placed. A
// refusal ends what this half accepts; it is repeated to a peer that asks again. restart() begins
// anew, on another connection with the peer.
//
// Invariants: what precedes expected_ has been placed and is never placed again; the bytes of a
// message that have been placed never exceed what its first packet announced.
#pragma once

#include <cstdint>

#include "transport/base/fixed_queue.h"
#include "transport/nic/nic.h"
#include "transport/softnic/memory_table.h"
#include "transport/wire/roce.h"

namespace pacecar {

class RcResponder {
 public:
  struct Config {
    uint32_t peer_queue_pair = 0;
    uint64_t first_psn = 0;
    uint32_t read_depth = 1;  // requests to read at once
    Bytes mtu = 0;
    Access access = Access::kRemoteAll | Access::kRemoteAtomic;  // to memory that allows it
    uint8_t rnr_delay = roce::kUsualRnrDelay;  // that the peer is to wait for a receive request
  };
  enum class Outcome : uint8_t {
    kPlaced,      // new, and in memory
    kCompleted,   // likewise, and the end of what the program is told: completion()
    kRead,        // a request to read or an atomic, new or again
    kDuplicate,   // has been placed before
    kOutOfOrder,  // one before it is missing
    kNotReady,    // there is no receive request for it
    kRefused,     // the queue pair is at its end
  };

  // `receives` outlives it, and may be others' too: a message takes its request when it begins.
  // Without room for any, sends are refused.
  RcResponder(const Config& config, FixedQueue<ReceiveRequest>& receives);
  // What came in on the connection before this is placed, or will never be.
  void restart(uint32_t peer_queue_pair, uint64_t first_psn);

  // A packet of kind kSend, kWrite, kReadRequest or kAtomic.
  Outcome on_request(const roce::Packet& packet, const MemoryTable& memory);
  // What on_request has just completed, without the queue pair's number.
  const Completion& completion() const { return completion_; }

  // Something has to be answered, be it not yet.
  bool answer_due() const { return !reads_.empty() || nak_ != 0 || ack_due_; }
  // The next answer; false when there is none. Its payload points into registered memory.
  bool next_answer(const MemoryTable& memory, roce::Packet* answer);
  // Refused something: the peer's queue pair is at its end, too.
  bool refused() const { return refusal_ != 0; }
  // Writes with immediate that are complete.
  uint64_t writes_received() const { return writes_received_; }

 private:
  // A response that is being sent.
  struct Read {
    uint64_t first_psn = 0;
    uint64_t next_psn = 0;
    uint64_t end_psn = 0;
    uint64_t address = 0;
    Bytes length = 0;
    uint32_t key = 0;
    uint32_t msn = 0;
    uint64_t original = 0;  // of an atomic, which has been done
    bool atomic = false;
  };
  // What has been done is not done again: the answer, should the peer ask again.
  struct Atomic {
    uint64_t psn = 0;
    uint64_t original = 0;
  };
  // The message whose packets are coming in.
  struct Message {
    roce::Kind kind = roce::Kind::kUnknown;  // kUnknown: none
    uint64_t address = 0;                    // where a write goes, as the peer calls it
    ReceiveRequest receive;                  // where a send goes
    Bytes length = 0;                        // announced by a write, or the room that a send has
    Bytes placed = 0;
    uint32_t key = 0;
  };

  Outcome on_duplicate(const roce::Packet& packet, uint64_t psn, const MemoryTable& memory);
  Outcome on_read_request(const roce::Packet& packet, const MemoryTable& memory);
  Outcome on_atomic(const roce::Packet& packet, const MemoryTable& memory);
  bool push_atomic(const Atomic& atomic, uint32_t msn);
  bool push_read(const roce::Packet& packet, uint64_t psn, uint32_t msn);
  void drop_reads_from(uint64_t psn);
  uint8_t begin(const roce::Packet& packet, const MemoryTable& memory);
  uint8_t check(const roce::Packet& packet, roce::Shape shape) const;
  uint8_t place(const roce::Packet& packet, const MemoryTable& memory);
  Outcome finish(const roce::Packet& packet, roce::Shape shape);
  Outcome refuse(uint8_t syndrome, uint64_t psn);
  void queue_nak(uint8_t syndrome, uint64_t psn);
  bool next_response(const MemoryTable& memory, roce::Packet* answer);
  uint64_t packets_of(Bytes length) const;
  bool needs_receives() const { return receives_.capacity() > 0; }

  Config config_;
  FixedQueue<ReceiveRequest>& receives_;
  FixedQueue<Read> reads_;
  FixedQueue<Atomic> atomics_;  // the newest
  uint64_t expected_;
  uint64_t nak_psn_ = 0;
  Message message_;
  Completion completion_;
  uint64_t writes_received_ = 0;
  uint32_t msn_ = 0;       // messages completed
  uint8_t nak_ = 0;        // to be sent; 0: none
  uint8_t refusal_ = 0;    // the last word; 0: none
  bool gap_nak_sent_ = false;  // the peer knows that expected_ is missing
  bool ack_due_ = false;
};

}  // namespace pacecar
