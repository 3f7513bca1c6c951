// The sends of one connection: matches sends with the receiver's posted buffers and turns them
// into writes. The oldest receive request comes first; among its buffers the tag chooses.
//
// Bounds: kMaxSends sends. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/message/control_words.h"
#include "transport/message/message_request.h"
#include "transport/nic/nic.h"

namespace pacecar {

constexpr uint32_t kMaxSends = kCtsSlots;
struct SendOperation {
  const uint8_t* data = nullptr;
  Bytes size = 0;
  int32_t tag = 0;
  uint32_t key = 0;
  MessageRequest* request = nullptr;
  Bytes offset = 0;  // in the receiver's buffer: other lanes carry the rest of the message
};

class SendQueue {
 public:
  SendQueue() : sends_(kMaxSends), free_(kMaxSends), waiting_(kMaxSends), matched_(kMaxSends) {
    for (uint32_t i = 0; i < kMaxSends; ++i) free_.push(i);
  }

  // False when kMaxSends sends are under way.
  bool post(const SendOperation& operation);
  bool waiting() const { return !waiting_.empty(); }
  bool idle() const { return free_.size() == kMaxSends; }
  uint32_t requests() const { return kMaxSends - static_cast<uint32_t>(free_.size()); }

  enum class Match : uint8_t { kOk, kProtocolError };
  // Reads the table, matches what can be matched, and calls on_grant(word) for every new slot. What
  // is matched takes writes of at most `write_bytes`, or of more where there would be too many.
  template <typename OnGrant>
  Match match(const SendTable& table, Bytes write_bytes, OnGrant on_grant);

  // The next write to post; false if there is none. `connection` is the receiver's number. The work
  // request's id is the number of the send.
  bool next_write(uint32_t connection, WorkRequest* write);
  // The write that next_write showed was accepted by the NIC; returns its payload bytes.
  Bytes on_posted();
  // Counts whatever brings a send nearer to its end.
  uint64_t moves() const { return moves_; }
  // Bytes of sends that are not done.
  Bytes backlog() const { return backlog_; }
  // Writes that were posted and are not done.
  uint32_t outstanding() const { return outstanding_; }
  // A write of send `number` is done. True when that completed the send, successfully or not.
  bool on_write_done(uint32_t number, CompletionStatus status);

  // The receiver closed after completing this many slots: earlier sends are done, the others fail.
  void on_peer_closed(uint64_t completed_slots);
  // Fails everything; what is outstanding at the NIC stays counted there.
  void fail(MessageFailure failure);
  // Forgets all sends, and goes on with this slot. Only while nothing is outstanding.
  void renew(uint64_t next_slot);
  // Fails what has not been handed to the NIC and reads this memory.
  void forget_memory(uint32_t key);
  // The application no longer looks at its requests.
  void drop_requests();

 private:
  struct Send {
    SendOperation operation;
    uint64_t sequence = 0;  // of the matched slot
    uint64_t remote = 0;
    Bytes posted = 0;
    Bytes write_bytes = 0;
    uint32_t remote_key = 0;
    uint32_t writes = 0;
    uint32_t writes_posted = 0;
    uint32_t writes_done = 0;
    MessageFailure failure = MessageFailure::kNone;
    bool used = false;
    bool matched = false;
  };

  bool load_group(const SendTable& table, bool* malformed);
  bool match_one(uint32_t number, Bytes write_bytes);
  void give_up(Send& send, MessageFailure failure);
  void finish(Send& send);
  void release(uint32_t number);

  std::vector<Send> sends_;
  FixedQueue<uint32_t> free_;
  FixedQueue<uint32_t> waiting_;            // posted and not matched, in order
  FixedQueue<uint32_t> matched_;            // with writes to post
  std::array<CtsSlot, kMaxGroup> group_{};  // the oldest receive request that is not all matched
  uint32_t group_size_ = 0;                 // 0: none loaded
  uint32_t group_used_ = 0;                 // bit per slot
  uint64_t next_sequence_ = 0;              // of the first slot after the group
  uint32_t outstanding_ = 0;
  uint64_t moves_ = 0;
  Bytes backlog_ = 0;
};

template <typename OnGrant>
SendQueue::Match SendQueue::match(const SendTable& table, Bytes write_bytes, OnGrant on_grant) {
  while (!waiting_.empty()) {
    if (group_size_ == 0) {
      bool malformed = false;
      if (!load_group(table, &malformed)) {
        return malformed ? Match::kProtocolError : Match::kOk;
      }
      for (uint32_t i = 0; i < group_size_; ++i) on_grant(group_[i].grant);
    }
    for (size_t left = waiting_.size(); left > 0 && group_size_ != 0; --left) {
      const uint32_t number = waiting_.front();
      waiting_.pop_front();
      if (!match_one(number, write_bytes)) waiting_.push(number);
      if (group_used_ == (1U << group_size_) - 1) {
        // Whole turns only, so that the order of the waiting sends stays.
        for (size_t rest = left - 1; rest > 0; --rest) {
          const uint32_t skipped = waiting_.front();
          waiting_.pop_front();
          waiting_.push(skipped);
        }
        group_size_ = 0;
      }
    }
    if (group_size_ != 0) return Match::kOk;  // its other tags have not been sent yet
  }
  return Match::kOk;
}

}  // namespace pacecar
