// The receives of one connection: advertises buffers in the sender's ring of slots and counts the
// writes that arrive. Requests complete in the order of posting.
//
// Bounds: kMaxReceives requests of up to kMaxGroup buffers. Pure; one thread.
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

struct ReceiveOperation {
  // It has no initial values, so that making an operation does not clear unused buffers.
  struct Buffer {
    uint8_t* data;
    Bytes size;
    int32_t tag;
    uint32_t key;
    uint64_t remote;  // the remote address of its first byte

    void set_remote(const RemoteAddress& to) {
      key = to.key;
      remote = to.address;
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

  // Eager messages may arrive in the cells in this memory. Call it before the first post.
  void enable_eager(const EagerCells& cells, const uint8_t* memory) {
    inbox_.enable(cells, memory);
    if (cells.bytes() > 0) places_ = kEagerPlaces;
  }

  // False when kMaxReceives requests are posted.
  bool post(const ReceiveOperation& operation);
  bool idle() const { return requests_.empty(); }
  Bytes posted_bytes() const { return posted_bytes_; }

  // The next run of unadvertised slots for which the peer has room, without wrapping; count 0:
  // none.
  struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  Run next_run() const;
  // Fills this run's slots of the table, with the grant in force.
  void write(const Run& run, uint64_t grant, ReceiveTable& table) const;
  void on_run_posted(uint32_t count);
  bool all_advertised() const { return advertised_ == posted_; }
  // More slots should be advertised at once: the peer has asked for `wanted` of them, or has few
  // left and needs them. Otherwise advertising may wait, so that one write covers several slots;
  // eager messages need no slot as long as there are cells for them.
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
  // Eager messages wait for buffers.
  bool holds_messages() const { return !inbox_.empty(); }
  uint32_t requests() const { return static_cast<uint32_t>(requests_.size()); }
  // Counts writes that have arrived.
  uint64_t moves() const { return moves_; }
  // All slots below this number are complete.
  uint64_t completed_slots() const { return completed_; }

  // Of the last kCtsSlots slots: whether the message is complete, why it failed, and its length.
  bool slot_done(uint64_t slot) const {
    return slot < completed_ || (slot < posted_ && !buffers_[place(slot)].active);
  }
  MessageFailure slot_failure(uint64_t slot) const {
    return used(slot) ? buffers_[place(slot)].failure : MessageFailure::kNone;
  }
  Bytes slot_bytes(uint64_t slot) const { return used(slot) ? buffers_[place(slot)].received : 0; }
  uint64_t posted_slots() const { return posted_; }

  void fail(MessageFailure failure);
  // Drops all receives as if their buffers were filled; returns the bytes of these buffers.
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
    MessageFailure failure = MessageFailure::kNone;  // of an abandoned message
    bool eager = false;                              // an eager message has filled it
  };
  struct Receive {
    MessageRequest* request = nullptr;
    uint64_t first = 0;  // slot number
    uint32_t count = 0;
    uint32_t done = 0;
    MessageFailure failure = MessageFailure::kNone;
  };

  // Eager messages may fill buffers that are not advertised yet, and the application may then post
  // further ones: more places than slots are needed.
  static constexpr uint32_t kEagerPlaces = 2 * kCtsSlots;
  static_assert(EagerCells::kMessages <= kEagerPlaces - kCtsSlots);

  uint64_t place(uint64_t slot) const { return slot & (places_ - 1); }
  // Some buffer has been posted at this slot's place.
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
  Bytes posted_bytes_ = 0;   // of active buffers
  uint64_t posted_ = 0;      // slots, ever
  uint64_t advertised_ = 0;  // of these, advertised
  uint64_t completed_ = 0;
  uint64_t read_by_peer_ = 0;  // the peer has certainly read all below it
  uint64_t moves_ = 0;
  EagerInbox inbox_;
  bool strict_;
  bool advertises_late_ = false;  // the last message was eager or tiny: advertising may wait
};

}  // namespace pacecar
