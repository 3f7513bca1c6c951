// The sends of one connection: matches sends with the receiver's posted buffers and turns them
// into writes. The oldest receive request comes first; among its buffers the tag chooses.
//
// If eager messages are enabled, a small send is copied as soon as it may leave, and is then done
// for the application. It may leave before its buffer is known, unless an earlier send may not. It
// then goes to one of the receiver's cells, and its CTS slot is skipped when that arrives. Short
// sends that come together go to a cell by one write, whether or not their buffers are known.
//
// A put counts as a write of the next message: it goes to an address that it names itself, and the
// message is complete only when the put is. There are no puts on connections with eager messages,
// which have no slots.
//
// Bounds: kMaxSends sends that are not done for the application. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/message/control_words.h"
#include "transport/message/eager.h"
#include "transport/message/message_request.h"
#include "transport/nic/nic.h"

namespace pacecar {

constexpr uint32_t kMaxSends = kCtsSlots;
// Puts before one message: their writes must fit in the count of its immediate.
constexpr uint32_t kMaxPuts = 128;

struct SendOperation {
  const uint8_t* data = nullptr;
  Bytes size = 0;
  int32_t tag = 0;
  uint32_t key = 0;
  MessageRequest* request = nullptr;
  Bytes offset = 0;      // in the receiver's buffer; other lanes carry the rest of the message
  bool host = false;     // memory of the host, not of a GPU
  bool awaited = true;   // the application waits for its acknowledgement
  bool put = false;      // to `remote`, not to a receive buffer
  RemoteAddress remote;  // of a put
};

class SendQueue {
 public:
  // `strict`: a message larger than its buffer fails at both ends; else it is cut.
  explicit SendQueue(bool strict = false)
      : waiting_(kCapacity), matched_(kCapacity), strict_(strict) {}

  // See EagerSource.
  void enable_eager(const EagerCells& cells, uint8_t* memory, uint32_t key,
                    const RemoteAddress& remote) {
    eager_.enable(cells, memory, key, remote);
  }

  // False when kMaxSends sends are not done for the application.
  bool post(const SendOperation& operation);
  // Some send has not left and cannot leave yet.
  bool waiting() const { return waiting_.size() > ahead_; }
  bool idle() const { return requests() == 0; }
  // Sends that are not done for the application or not acknowledged by the peer.
  uint32_t requests() const {
    return static_cast<uint32_t>(sends_.size() - free_.size()) - resting_;
  }
  // The total of slots that the peer should have advertised, for the wanted word: it may delay
  // advertising until it gets one. 0: no word is needed.
  uint64_t wanted_slots() const;
  // All sends that are done for the application have reached the peer.
  bool settled() const { return matched_.empty() && outstanding_ == 0; }
  // Some send is not done for the application.
  bool has_unreported() const { return unreported_ > 0; }

  enum class Match : uint8_t { kOk, kProtocolError };
  // Reads the table, matches sends with slots, and calls on_grant(word) for every new slot. A
  // matched send is divided into writes of at most `write_bytes`, or of more where there would be
  // too many. An unmatched one may go ahead.
  template <typename OnGrant>
  Match match(const SendTable& table, Bytes write_bytes, OnGrant on_grant);

  // The next write is the empty one that ends an abandoned message. It may leave when all earlier
  // writes of that message are done, because writes may overtake each other.
  bool gives_up() const {
    return !matched_.empty() && sends_[matched_.front()].failure != MessageFailure::kNone;
  }
  // The next write to post; false if there is none. `connection` is the receiver's number. The work
  // request's id is the number of the send.
  bool next_write(uint32_t connection, WorkRequest* write);
  // The NIC has accepted the write of the last next_write(); returns its payload bytes.
  Bytes on_posted();
  // Counts every step of progress of a send.
  uint64_t moves() const { return moves_; }
  // Writes at the NIC.
  uint32_t outstanding() const { return outstanding_; }
  // Writes that the peer's NIC has acknowledged, ever.
  uint64_t arrived() const { return arrived_; }
  // A write of send `number` is done. Returns how many sends that completed, successfully or not.
  uint32_t on_write_done(uint32_t number, CompletionStatus status);

  // The receiver has closed with so many slots completed: sends before that are done, the others
  // fail.
  void on_peer_closed(uint64_t completed_slots);
  // Fails everything; outstanding() still counts the writes at the NIC.
  void fail(MessageFailure failure);
  // Drops all sends and continues with this slot. Only while no write is outstanding.
  void renew(uint64_t next_slot);
  // Fails the sends that read this memory and are not yet at the NIC.
  void forget_memory(uint32_t key);
  // The application no longer looks at its requests.
  void drop_requests();

 private:
  // Beyond the application's sends: outstanding copies, and messages whose slots are not known.
  static constexpr uint32_t kCapacity = kMaxSends + EagerCells::kCells + EagerCells::kMessages;

  struct Send {
    SendOperation operation;
    uint64_t sequence = 0;  // of the matched slot
    uint64_t remote = 0;
    Bytes posted = 0;
    Bytes write_bytes = 0;
    uint32_t remote_key = 0;
    uint32_t writes = 0;
    uint32_t puts = 0;  // writes of the puts before it, counted as its own
    uint32_t writes_posted = 0;
    uint32_t writes_done = 0;
    MessageFailure failure = MessageFailure::kNone;
    uint8_t cell = EagerSource::kNone;  // that holds a copy
    bool used = false;
    bool matched = false;
    bool eager = false;     // goes to the receiver's cell
    bool done = false;      // all its writes
    bool reported = false;  // the application
  };

  bool load_group(const SendTable& table, bool* malformed);
  bool match_one(uint32_t number, Bytes write_bytes);
  bool match_put(uint32_t number, Bytes write_bytes);
  static void divide(Send& send, Bytes write_bytes, uint32_t most_writes);
  bool joins_others(const Send& send, const CtsSlot& slot) const;
  void cut(Send& send, const CtsSlot& slot) const;
  void send_ahead();
  void send_eagerly(uint32_t number, uint64_t next_slot);
  bool copy(Send& send);
  void give_up(Send& send, MessageFailure failure);
  static uint32_t code_of(MessageFailure failure);  // for the receiver
  void finish(Send& send);
  uint32_t take();
  void release(uint32_t number);

  // As many as were ever pending at once, and which of them are free. Grown on demand, because most
  // connections are idle.
  std::vector<Send> sends_;
  std::vector<uint16_t> free_;
  EagerSource eager_;
  FixedQueue<uint16_t> waiting_;            // posted, not matched; first those that have gone ahead
  uint32_t ahead_ = 0;                      // of them, gone ahead
  uint32_t resting_ = 0;                    // of the sends ahead, those that are done
  uint32_t unreported_ = 0;                 // not done for the application
  FixedQueue<uint16_t> matched_;            // with writes to post
  std::array<CtsSlot, kMaxGroup> group_{};  // the oldest receive request that is not fully matched
  uint32_t group_size_ = 0;                 // 0: none loaded
  uint32_t group_used_ = 0;                 // bit per slot
  uint64_t next_sequence_ = 0;              // of the first slot after the group
  uint32_t put_writes_ = 0;                 // since the last message that was matched
  uint32_t outstanding_ = 0;
  uint64_t arrived_ = 0;
  uint64_t moves_ = 0;
  bool strict_;
  bool advertised_late_ = false;  // the receiver may delay advertising
};

template <typename OnGrant>
SendQueue::Match SendQueue::match(const SendTable& table, Bytes write_bytes, OnGrant on_grant) {
  while (!waiting_.empty()) {
    if (group_size_ == 0) {
      bool malformed = false;
      if (!load_group(table, &malformed)) {
        if (malformed) return Match::kProtocolError;
        send_ahead();
        return Match::kOk;
      }
      for (uint32_t i = 0; i < group_size_; ++i) on_grant(group_[i].grant);
    }
    // Usually the first matches. Otherwise each is tried once, so that the order of the others
    // stays.
    while (!waiting_.empty() && match_one(waiting_.front(), write_bytes)) waiting_.pop_front();
    for (size_t left = group_size_ == 0 ? 0 : waiting_.size(); left > 0; --left) {
      const uint32_t number = waiting_.front();
      waiting_.pop_front();
      if (!match_one(number, write_bytes)) waiting_.push(number);
    }
    if (group_size_ != 0) return Match::kOk;  // its other tags have not been sent yet
  }
  return Match::kOk;
}

}  // namespace pacecar
