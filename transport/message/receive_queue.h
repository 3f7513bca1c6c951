// The receives of one connection: advertises buffers in the sender's ring of slots and counts the
// writes that arrive. Requests complete in the order of posting. A receive lies where the
// application has made it, and the queue refers to it until it is done. Bounds: kMaxReceives
// requests of up to kMaxGroup buffers. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/message/control_words.h"
#include "transport/message/eager.h"
#include "transport/message/message_request.h"

namespace pacecar {

constexpr uint32_t kMaxReceives = kCtsSlots / kMaxGroup;

// Up to kMaxGroup buffers, each for one message. `sizes` counts the bytes that have arrived.
struct MessageReceive : MessageRequest {
  struct Buffer {
    uint8_t* data = nullptr;
    Bytes size = 0;
    int32_t tag = 0;
    uint32_t key = 0;
    uint64_t remote = 0;  // the remote address of its first byte

    // Only ReceiveQueue writes these. `done` and `failure` are valid also while the receive is
    // pending, and after it has failed: read them only while no thread polls.
    uint32_t writes_seen = 0;
    uint32_t writes = 0;                             // 0: not yet known
    bool done = false;                               // the message is complete
    bool eager = false;                              // an eager message has filled it
    MessageFailure failure = MessageFailure::kNone;  // of an abandoned message
  };

  // First clear(), then add() for each buffer.
  void clear() { count = 0; }
  void add(uint8_t* data, Bytes size, int32_t tag, const RemoteAddress& remote) {
    sizes[count] = 0;
    buffers[count++] = {data, size, tag, remote.key, remote.address};
  }

  std::array<Buffer, kMaxGroup> buffers;  // the first `count`

  MessageReceive* next = nullptr;  // Submissions'
  uint32_t connection = 0;         // Submissions'

  uint64_t first_slot = 0;  // set by ReceiveQueue
  uint32_t buffers_done = 0;
};

class ReceiveQueue {
 public:
  // Eager messages may arrive in the cells in this memory. Call it before the first post.
  void enable_eager(const EagerCells& cells, const uint8_t* memory) {
    inbox_.enable(cells, memory);
    if (cells.bytes() > 0) places_ = kEagerPlaces;
  }

  bool post(MessageReceive& receive);  // False when kMaxReceives requests are posted.
  bool idle() const { return requests_.empty(); }
  Bytes posted_bytes() const { return posted_bytes_; }

  // The next run of unadvertised slots for which the peer has room, unwrapped; count 0: none.
  struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  Run next_run() const;
  // Fills this run's slots of the table, with the grant in force.
  void write(const Run& run, uint64_t grant, ReceiveTable& table) const;
  void on_run_posted(uint32_t count);
  bool all_advertised() const { return advertised_ == posted_; }
  // More slots should be advertised at once: the peer has asked for `wanted` slots, or has few left
  // and needs them. Otherwise advertising may wait, so that one write covers several slots; eager
  // messages need no slot as long as there are cells for them.
  bool urgent(uint64_t wanted) const;

  enum class Arrival : uint8_t { kOk, kProtocolError };
  struct Progress {
    Bytes payload = 0;      // of messages that the write contained
    Bytes finished = 0;     // of posted buffers that are complete
    uint32_t messages = 0;  // that have completed
  };
  // A write of `bytes` has arrived in the buffer, or the cell, that this immediate names.
  Arrival on_write(const Immediate& immediate, Bytes bytes, Progress* progress);
  // Copies eager messages that have arrived into the buffers that have been posted since.
  Arrival take_eager(Progress* progress);
  bool holds_messages() const { return !inbox_.empty(); }
  // After the connection's end: the next receive may still get one of the messages, as none failed.
  bool has_leftovers() const { return !receive_failed_ && holds_messages(); }
  uint32_t requests() const { return static_cast<uint32_t>(requests_.size()); }
  // Counts writes that have arrived.
  uint64_t moves() const { return moves_; }
  // All slots below this number are complete.
  uint64_t completed_slots() const { return completed_; }
  // Slots below this number have been posted.
  uint64_t posted_slots() const { return posted_; }

  void fail(MessageFailure failure);
  // Drops all receives as if their buffers were filled; returns the bytes of these buffers.
  Bytes renew();
  // Whether a buffer that is still to be filled lies in this memory.
  bool uses(uint32_t key) const;
  void drop_requests();  // The application's receives end: later writes for them are only counted.

 private:
  // The known facts of a slot, even if its buffer was filled before it is advertised.
  struct Slot {
    MessageReceive* receive = nullptr;  // nullptr: it is complete
    int32_t tag = 0;
    uint8_t group_size = 0;
    uint8_t group_index = 0;
  };

  // Eager messages may fill buffers that are not advertised yet, and the application may then post
  // further ones: more places than slots are needed.
  static constexpr uint32_t kEagerPlaces = 2 * kCtsSlots;
  static_assert(EagerCells::kMessages <= kEagerPlaces - kCtsSlots);

  Slot& at(uint64_t slot) { return slots_[slot & (places_ - 1)]; }
  const Slot& at(uint64_t slot) const { return slots_[slot & (places_ - 1)]; }
  // The posted slot that this message goes to; posted_: none yet.
  uint64_t slot_for(const EagerHeader& header) const;
  void complete(MessageReceive& receive, uint32_t index, Progress* progress);
  void finish_first();
  void forget_receives();  // Forgets the receives; their slots count as complete.

  uint32_t places_ = kCtsSlots;  // a power of two
  std::vector<Slot> slots_;      // by place, as far as ever posted
  FixedQueue<MessageReceive*> requests_{kMaxReceives};
  Bytes posted_bytes_ = 0;   // of buffers that are not complete
  uint64_t posted_ = 0;      // slots, ever
  uint64_t advertised_ = 0;  // the number of advertised slots
  uint64_t completed_ = 0;
  uint64_t read_by_peer_ = 0;  // the peer has certainly read all below it
  uint64_t moves_ = 0;
  EagerInbox inbox_;
  bool advertises_late_ = false;  // the last message was eager or tiny: advertising may wait
  bool receive_failed_ = false;
  bool dropped_ = false;
};

}  // namespace pacecar
