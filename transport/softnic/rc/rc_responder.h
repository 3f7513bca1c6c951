// RcResponder: the receiving half of a queue pair of standard RC or UC. It takes requests in the
// order of their PSNs, each once, places their payload, and answers them (InfiniBand Architecture
// Specification vol. 1, 9.7.4, 9.7.5 and 9.9). Answers leave in the order of the requests: an
// acknowledgement never overtakes the response to an earlier read. Every packet's key, bounds and
// rights are checked before a byte is placed. After a refusal this half accepts nothing more, and
// repeats the refusal for further requests. restart() begins again, on another connection with the
// peer. With UC nothing is answered, and no error of the peer ends the connection: a message that
// is wrong or does not arrive whole is dropped, and the next message begins anew (9.8.2). The next
// send gets the receive request of a dropped send. Invariants: packets before expected_ have been
// placed and are never placed again; a message's placed bytes never exceed the length in its first
// packet. Bounded; allocates once. One owner.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "transport/base/fixed_queue.h"
#include "transport/nic/standard_nic.h"
#include "transport/softnic/memory_table.h"
#include "transport/wire/roce.h"

namespace pacecar {

class RcResponder {
 public:
  struct Config {
    QueuePairId queue_pair = 0;
    DomainId domain = kNoDomain;
    uint32_t peer_queue_pair = 0;
    uint64_t first_psn = 0;
    uint32_t read_depth = 1;  // most outstanding reads
    Bytes mtu = 0;
    StandardRights rights{.rnr_delay = roce::kUsualRnrDelay};
    bool reliable = true;  // false: UC
  };
  enum class Outcome : uint8_t {
    kPlaced,      // new, and in memory
    kCompleted,   // new, in memory, and there is a completion for the program: completion()
    kRead,        // a read or an atomic, new or repeated
    kDuplicate,   // placed before
    kOutOfOrder,  // an earlier packet is missing
    kNotReady,    // no receive request is posted for it
    kRefused,     // refused: the connection ends
    kDropped,     // UC: refused
  };

  // `receives` outlives the responder, and may be shared: a message takes its receive request when
  // it begins. If the capacity of `receives` is 0, sends are refused.
  RcResponder(const Config& config, FixedQueue<ReceiveRequest>& receives);
  // Begins on another connection. Packets of the last one are not placed any more.
  void restart(uint32_t peer_queue_pair, uint64_t first_psn);

  // A packet of kind kSend, kWrite, kReadRequest or kAtomic.
  Outcome on_request(const roce::Packet& packet, const MemoryTable& memory);
  // The completion of the last kCompleted, without the queue pair's id.
  const Completion& completion() const { return completion_; }

  bool answer_due() const { return !reads_.empty() || nak_ != 0 || ack_due_; }
  // The next answer; false: none. Its payload points into registered memory.
  bool next_answer(const MemoryTable& memory, roce::Packet* answer);
  // A request was refused: the connection ends, also at the peer.
  bool refused() const { return refusal_ != 0; }
  // The cause of the refusal: kReceiveTooShort, kReceiveGone: the receive request that
  // take_back_receive() returns; or kLocalError.
  CompletionStatus cause() const { return cause_; }
  // As StandardNic::set_rights.
  void set_rights(const StandardRights& rights) { config_.rights = rights; }
  // The receive request of the unfinished message, once.
  std::optional<ReceiveRequest> take_back_receive() {
    drop_message();
    return std::exchange(kept_, std::nullopt);
  }
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
    uint64_t original = 0;  // of an executed atomic
    bool atomic = false;
    bool repeated = false;
  };
  // The result of an executed atomic, for a repeated request.
  struct Atomic {
    uint64_t psn = 0;
    uint64_t original = 0;
  };
  // The message whose packets are arriving.
  struct Message {
    roce::Kind kind = roce::Kind::kUnknown;  // kUnknown: none
    uint64_t address = 0;                    // remote address of a write
    ReceiveRequest receive;                  // of a send
    Bytes length = 0;                        // announced by a write; of a send that of `receive`
    Bytes placed = 0;
    uint32_t key = 0;
    bool taken = false;  // `receive` is a taken receive request
  };

  Outcome on_duplicate(const roce::Packet& packet, uint64_t psn, const MemoryTable& memory);
  Outcome on_read_request(const roce::Packet& packet, const MemoryTable& memory);
  Outcome on_atomic(const roce::Packet& packet, const MemoryTable& memory);
  Outcome on_unreliable(const roce::Packet& packet, const MemoryTable& memory);
  void drop_message();
  bool push_atomic(const Atomic& atomic, uint32_t msn);
  bool push_read(const roce::Packet& packet, uint64_t psn, uint32_t msn, bool repeated);
  void drop_reads_from(uint64_t psn);
  uint8_t take(const roce::Packet& packet, roce::Shape shape, const MemoryTable& memory);
  uint8_t begin(const roce::Packet& packet, const MemoryTable& memory);
  uint8_t check(const roce::Packet& packet, roce::Shape shape, const MemoryTable& memory);
  uint8_t place(const roce::Packet& packet, const MemoryTable& memory);
  Outcome finish(const roce::Packet& packet, roce::Shape shape);
  Outcome refuse(uint8_t syndrome, uint64_t psn);
  void queue_nak(uint8_t syndrome, uint64_t psn);
  bool next_response(const MemoryTable& memory, roce::Packet* answer);
  uint64_t packets_of(Bytes length) const;
  bool has_receive() const { return kept_ || !receives_.empty(); }
  ReceiveRequest take_receive();
  bool usable(uint32_t key, const MemoryTable& memory) const {
    return memory.usable(key, config_.queue_pair, config_.domain);
  }
  bool may_read(const roce::Packet& packet, const MemoryTable& memory) const;
  bool needs_receives() const { return receives_.capacity() > 0; }

  Config config_;
  FixedQueue<ReceiveRequest>& receives_;
  FixedQueue<Read> reads_;
  FixedQueue<Atomic> atomics_;  // the newest results
  uint64_t expected_;
  uint64_t nak_psn_ = 0;
  Message message_;
  std::optional<ReceiveRequest> kept_;  // the receive request of a dropped send
  Completion completion_;
  CompletionStatus cause_ = CompletionStatus::kLocalError;
  uint64_t writes_received_ = 0;
  uint32_t msn_ = 0;           // messages completed
  uint8_t nak_ = 0;            // to be sent; 0: none
  uint8_t refusal_ = 0;        // the NAK that ended the connection; 0: none
  bool gap_nak_sent_ = false;  // a NAK for the gap at expected_ was sent
  bool ack_due_ = false;
};

}  // namespace pacecar
