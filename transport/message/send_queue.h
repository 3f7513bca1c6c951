// The sends of one connection: matches sends with the receiver's posted buffers and turns them
// into writes. The oldest receive request comes first; among its buffers the tag chooses.
// A send lies where the application has made it, and the queue refers to it until it is done for
// the application. If eager messages are enabled, a small send is copied into a cell as soon as it
// may leave, and is then done; its cell does the rest. It may leave before its buffer is known,
// unless an earlier send may not. It then goes to one of the receiver's cells, and its CTS slot is
// skipped when that arrives. Short sends that come together go to a cell by one write, whether or
// not their buffers are known. A put counts as a write of the next message: it goes to an address
// that it names itself, and the message is complete only when the put is. Connections with eager
// messages have no puts, as they have no slots.
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
  Bytes offset = 0;      // in the receiver's buffer; other lanes carry the rest of the message
  bool host = false;     // memory of the host, not of a GPU
  bool awaited = true;   // the application waits for its acknowledgement
  bool put = false;      // to `remote`, not to a receive buffer
  RemoteAddress remote;  // of a put
};

struct MessageSend : MessageRequest {
  SendOperation operation;
  // Its receive buffer, counted from the connection's first. Slot and size (of the buffer, if that
  // is smaller) are known before the send is done: until then read them only while no thread polls.
  static constexpr uint64_t kNoSlot = ~uint64_t{0};
  uint64_t slot = kNoSlot;

  MessageSend* next = nullptr;  // Submissions'
  uint32_t connection = 0;      // Submissions'

  // The progress of its writes, kept by SendQueue.
  uint64_t target = 0;  // the remote address of its first byte
  Bytes posted = 0;
  Bytes write_bytes = 0;
  uint32_t target_key = 0;
  uint32_t writes = 0;
  uint32_t puts = 0;  // writes of the puts before it, counted as its own
  uint32_t writes_posted = 0;
  uint32_t writes_done = 0;
  uint16_t number = 0;  // in the ids of its writes
};

class SendQueue {
 public:
  // See EagerSource.
  void enable_eager(const EagerCells& cells, uint8_t* memory, uint32_t key,
                    const RemoteAddress& remote) {
    eager_.enable(cells, memory, key, remote);
  }

  bool post(MessageSend& send);  // False when kMaxSends sends are not done for the application.
  // Some send has not left and cannot leave yet.
  bool waiting() const { return !waiting_.empty(); }
  bool idle() const { return requests() == 0; }
  // Sends that are not done for the application, and writes from cells that the peer has not
  // acknowledged.
  uint32_t requests() const { return pending() + eager_.writes(); }
  // The total of slots that the peer should have advertised, for the wanted word: it may delay
  // advertising until it gets one. 0: no word is needed.
  uint64_t wanted_slots() const;
  // All sends that are done for the application have reached the peer.
  bool all_arrived() const { return matched_.empty() && outstanding_ == 0; }
  // Sends that are not done for the application.
  uint32_t pending() const { return static_cast<uint32_t>(sends_.size() - free_.size()); }

  enum class Match : uint8_t { kOk, kProtocolError };
  // Reads the table, matches sends with slots, and calls on_grant(word) for every new slot. A
  // matched send is divided into writes of at most `write_bytes`, or of more where there would be
  // too many. An unmatched one may go ahead.
  template <typename OnGrant>
  Match match(const SendTable& table, Bytes write_bytes, OnGrant on_grant);

  // The next write is the empty one that ends an abandoned message. It may leave when all earlier
  // writes of that message are done, because writes may overtake each other.
  bool gives_up() const {
    return !matched_.empty() && matched_.front() < kFirstCell &&
           sends_[matched_.front()]->failure != MessageFailure::kNone;
  }
  // A message's memory went after its last write was posted: none is left to end it at the peer.
  bool cannot_end() const { return cannot_end_; }
  // The next write to post; false if there is none. `connection` is the receiver's number. The work
  // request's id is the number of the send or the cell.
  bool next_write(uint32_t connection, WorkRequest* write);
  // The NIC has accepted the write of the last next_write(); returns its payload bytes.
  Bytes on_posted();
  // Counts every step of progress of a send.
  uint64_t moves() const { return moves_; }
  // Writes at the NIC.
  uint32_t outstanding() const { return outstanding_; }
  // Writes that the peer's NIC has acknowledged, ever.
  uint64_t arrived() const { return arrived_; }
  // A write with this number is done. Returns how many sends that completed, successfully or not.
  uint32_t on_write_done(uint32_t number, CompletionStatus status);

  // The receiver closed with this many slots completed: earlier sends are done, the others fail.
  void on_peer_closed(uint64_t completed_slots);
  // Fails everything; outstanding() still counts the writes at the NIC.
  void fail(MessageFailure failure);
  // Drops all sends and continues with this slot. Only while no write is outstanding.
  void renew(uint64_t next_slot);
  // Fails the sends that read this memory and are not yet at the NIC.
  void forget_memory(uint32_t key);
  // The application's sends end; done ones still reach the peer if no other is pending.
  void drop_requests();

 private:
  // Numbers from here on are cells, those below are sends.
  static constexpr uint16_t kFirstCell = 1 << 12;

  template <typename T, typename Matches>
  void match_in_order(FixedQueue<T>& queue, Matches matches);
  bool load_group(const SendTable& table, bool* malformed);
  const CtsSlot* take_slot(int32_t tag);
  bool match_one(MessageSend& send, Bytes write_bytes);
  bool match_put(MessageSend& send, Bytes write_bytes);
  static void divide(MessageSend& send, Bytes write_bytes, uint32_t most_writes);
  bool joins_others(Bytes size, const CtsSlot& slot) const;
  void send_ahead();
  void send_eagerly(MessageSend& send, uint64_t next_slot);
  bool copy(MessageSend& send);
  static void give_up(MessageSend& send, MessageFailure failure);
  void finish(MessageSend& send);
  void clear();

  // As many as were pending at once, and the free ones. Grown on demand: most connections are idle.
  std::vector<MessageSend*> sends_;
  std::vector<uint16_t> free_;
  EagerSource eager_;
  FixedQueue<MessageSend*> waiting_{kMaxSends};                   // not matched
  FixedQueue<int32_t> ahead_{EagerCells::kMessages};              // tags of those gone ahead
  FixedQueue<uint16_t> matched_{kMaxSends + EagerCells::kCells};  // with writes to post
  std::array<CtsSlot, kMaxGroup> group_{};  // the oldest receive request that is not fully matched
  uint32_t group_size_ = 0;                 // 0: none loaded
  uint32_t group_used_ = 0;                 // bit per slot
  uint64_t next_sequence_ = 0;              // of the first slot after the group
  uint32_t put_writes_ = 0;                 // since the last message that was matched
  uint32_t outstanding_ = 0;
  uint64_t arrived_ = 0;
  uint64_t moves_ = 0;
  bool advertised_late_ = false;  // the receiver may delay advertising
  bool cannot_end_ = false;
};

// Usually the first matches. Otherwise each is tried once, so that the order of the others stays.
template <typename T, typename Matches>
void SendQueue::match_in_order(FixedQueue<T>& queue, Matches matches) {
  while (!queue.empty() && matches(queue.front())) queue.pop_front();
  if (group_size_ != 0) queue.erase_if(matches);
}

template <typename OnGrant>
SendQueue::Match SendQueue::match(const SendTable& table, Bytes write_bytes, OnGrant on_grant) {
  while (!waiting_.empty() || !ahead_.empty()) {
    if (group_size_ == 0) {
      bool malformed = false;
      if (!load_group(table, &malformed)) {
        if (malformed) return Match::kProtocolError;
        send_ahead();
        return Match::kOk;
      }
      for (uint32_t i = 0; i < group_size_; ++i) on_grant(group_[i].grant);
    }
    match_in_order(ahead_, [this](int32_t tag) { return take_slot(tag) != nullptr; });
    match_in_order(waiting_, [&](MessageSend* send) { return match_one(*send, write_bytes); });
    if (group_size_ != 0) return Match::kOk;  // its other tags have not been sent yet
  }
  return Match::kOk;
}

}  // namespace pacecar
