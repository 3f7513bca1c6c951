// The receives of one connection: posts buffers into the sender's ring and counts what arrives.
// Requests complete in the order of their posting.
//
// Bounds: kMaxReceives requests of up to kMaxGroup buffers. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/message/control_words.h"
#include "transport/message/eager.h"
#include "transport/message/message_request.h"

namespace pacecar {

constexpr uint32_t kMaxReceives = kCtsSlots / kMaxGroup;

struct ReceiveOperation {
  // Without initial values: an operation that is made does not clear what it does not use.
  struct Buffer {
    uint8_t* data;
    Bytes size;
    int32_t tag;
    uint32_t key;
    uint64_t remote;  // what the peer calls its first byte

    void lie_at(const RemotePlace& place) {
      key = place.key;
      remote = place.address;
    }
  };
  uint32_t count = 0;
  MessageRequest* request = nullptr;
  std::array<Buffer, kMaxGroup> buffers;  // the first `count`
};

class ReceiveQueue {
 public:
  // `strict`: an eager message larger than its buffer fails the receive; else it is cut.
  explicit ReceiveQueue(bool strict = false) : requests_(kMaxReceives), strict_(strict) {}

  // Eager messages may come into cells in this memory, if there are any. Before the first post.
  void enable_eager(const EagerCells& cells, const uint8_t* memory) {
    inbox_.enable(cells, memory);
    if (cells.bytes() > 0) places_ = kEagerPlaces;
  }

  // False when kMaxReceives requests are posted.
  bool post(const ReceiveOperation& operation);
  bool idle() const { return requests_.empty(); }
  Bytes posted_bytes() const { return posted_bytes_; }

  // The next run of slots that the peer has not been told and has room for, without wrapping;
  // count 0: none.
  struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  Run next_run() const;
  // Fills this run's slots of the table, with the grant in force.
  void write(const Run& run, uint64_t grant, ReceiveTable& table) const;
  void on_run_posted(uint32_t count);
  bool all_advertised() const { return advertised_ == posted_; }
  // The peer should be told of more slots at once: because it says that it wants so many, or has
  // few left and needs them. Otherwise telling may wait a little, so that one write tells of
  // several; eager messages need no slot at all, as long as there are cells for them.
  bool urgent(uint64_t wanted) const;

  enum class Arrival : uint8_t { kOk, kProtocolError };
  struct Progress {
    Bytes payload = 0;      // of messages that the write has brought
    Bytes finished = 0;     // of posted buffers that are done with
    uint32_t messages = 0;  // that have completed
  };
  // A write of `bytes` into the buffer, or the cell, of this immediate has arrived.
  Arrival on_write(const Immediate& immediate, Bytes bytes, Progress* progress);
  // Copies eager messages that have arrived into the buffers that have been posted since.
  Arrival take_eager(Progress* progress);
  // Eager messages wait for buffers.
  bool holds_messages() const { return !inbox_.empty(); }
  uint32_t requests() const { return static_cast<uint32_t>(requests_.size()); }
  // Counts writes that have arrived.
  uint64_t moves() const { return moves_; }
  // All slots below this number are complete.
  uint64_t completed_slots() const { return completed_; }

  // Of the last kCtsSlots slots: whether the message is all there, or why it never will be, and how
  // long it is.
  bool slot_done(uint64_t slot) const {
    return slot < completed_ || (slot < posted_ && !buffers_[place(slot)].active);
  }
  MessageFailure slot_failure(uint64_t slot) const {
    return used(slot) ? buffers_[place(slot)].failure : MessageFailure::kNone;
  }
  Bytes slot_bytes(uint64_t slot) const { return used(slot) ? buffers_[place(slot)].received : 0; }
  uint64_t posted_slots() const { return posted_; }

  void fail(MessageFailure failure);
  // Forgets all receives, as if their buffers were filled; returns the bytes of these.
  Bytes renew();
  // Whether a buffer that is still to be filled lies in this memory.
  bool uses(uint32_t key) const;
  void drop_requests();

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    uint64_t remote = 0;
    Bytes size = 0;
    Bytes received = 0;
    uint32_t key = 0;
    int32_t tag = 0;
    uint32_t writes_seen = 0;
    uint32_t writes = 0;  // 0: not yet known
    uint8_t group_size = 0;
    uint8_t group_index = 0;
    bool active = false;
    MessageFailure failure = MessageFailure::kNone;  // of one that was given up
    bool eager = false;                              // an eager message has filled it
  };
  struct Receive {
    MessageRequest* request = nullptr;
    uint64_t first = 0;  // slot number
    uint32_t count = 0;
    uint32_t done = 0;
    MessageFailure failure = MessageFailure::kNone;
  };

  // Eager messages may fill buffers that the peer has not been told of, and others be posted in
  // their stead.
  static constexpr uint32_t kEagerPlaces = 2 * kCtsSlots;
  static_assert(EagerCells::kMessages <= kEagerPlaces - kCtsSlots);

  uint64_t place(uint64_t slot) const { return slot & (places_ - 1); }
  // Its buffer has been posted, or one whole round of places or more before it.
  bool used(uint64_t slot) const { return place(slot) < buffers_.size(); }
  // The posted buffer that this message goes to; nullptr: none yet.
  Buffer* buffer_for(const EagerHeader& header);
  Arrival complete(Buffer& buffer, Progress* progress);
  Receive* receive_of(const Buffer& buffer);
  void complete_in_order();
  void finish(Receive& receive);

  uint32_t places_ = kCtsSlots;  // a power of two
  std::vector<Buffer> buffers_;  // by place(slot), as far as ever posted
  FixedQueue<Receive> requests_;
  Bytes posted_bytes_ = 0;  // of active buffers
  uint64_t posted_ = 0;     // slots, ever
  uint64_t advertised_ = 0;  // of these, written to the peer
  uint64_t completed_ = 0;
  uint64_t read_by_peer_ = 0;  // of those told: all below this number, for certain
  uint64_t moves_ = 0;
  EagerInbox inbox_;
  bool strict_;
  bool advertises_late_ = false;  // the last message was eager, or as good as that
};

}  // namespace pacecar
