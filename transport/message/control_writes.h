// ControlWrites: small writes into memory that the peer polls. Each flow has one word each way, the
// receiver's grant or the sender's demand; connections write CTS slots, close words and notes from
// their tables. Control writes leave on the control queue pair of their flow. Pure; one thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/base/fresh_pages.h"
#include "transport/base/work_list.h"
#include "transport/message/flow.h"
#include "transport/message/places.h"
#include "transport/nic/nic.h"

namespace pacecar {

// A work request's id: identifies the object to which its completion belongs.
struct WorkId {
  enum class Kind : uint8_t { kData, kSlots, kWord, kClose, kNote, kWant };
  Kind kind = Kind::kData;
  uint32_t owner = 0;   // connection or flow
  uint32_t number = 0;  // kData: of the send; kClose, kNote: 0 from a sending end, 1 from the other

  uint64_t pack() const {
    return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(owner) << 24 | number;
  }
  static WorkId unpack(uint64_t id) {
    return {static_cast<Kind>(id >> 56), static_cast<uint32_t>(id >> 24 & 0xFFFFFFFF),
            static_cast<uint32_t>(id & 0xFFFFFF)};
  }
};

class ControlWrites {
 public:
  explicit ControlWrites(Nic& nic);  // `nic` outlives it.

  // Errors: kUnavailable when the NIC's memory regions are used up.
  Result<void> register_memory();
  // The last call. The NIC may take turns meanwhile, and send once more what lies in our tables.
  void deregister_memory();

  // Memory for the peer's word of a new flow. Errors as above.
  Result<MemoryRegion> expose_word(FlowId flow);
  // The flow ends: nothing of it is written any more.
  void forget(FlowId flow) { pending_.remove(flow); }

  // Writes the newest word to the peer with the next post_pending(), unless it equals the last one.
  void queue(FlowId flow, uint64_t word);
  void post_pending(const Places<MessageFlow>& flows, Instant now);
  // Writes the newest word, also if the peer has it.
  void post_word(MessageFlow& flow, Instant now);
  void on_word_done(MessageFlow& flow);
  // False: the queue pair is full, try again later.
  bool post(const MessageFlow& flow, const WorkRequest& write) {
    return nic_.post(flow.control, {&write, 1}) == 1;
  }

  // The word that the peer has written since take_word(); nullopt: none.
  std::optional<uint64_t> new_word(FlowId flow) const {
    const uint64_t word = load_polled(words_in_[flow]);
    return word == words_seen_[flow] ? std::nullopt : std::optional(word);
  }
  void take_word(FlowId flow, uint64_t word) { words_seen_[flow] = word; }

 private:
  Nic& nic_;
  OwnPages<uint64_t> words_;          // By FlowId: close together, because they are polled often.
  std::span<uint64_t> words_in_;      // written by the peer
  std::span<uint64_t> words_out_;     // source of our own writes
  std::vector<uint64_t> words_seen_;  // of words_in_
  MemoryRegion words_out_region_;
  WorkList pending_;  // flows with a word to write
};

}  // namespace pacecar
