// CompletionQueue: the one completion queue of a NIC, and the receive requests that its queue pairs
// share. The queue never overflows: whoever makes a queue pair reserves room for all that it may
// have outstanding.
//
// Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/result.h"
#include "transport/verbs/device.h"
#include "transport/verbs/device_clock.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/offloads.h"

namespace pacecar {

class CompletionQueue {
 public:
  static constexpr size_t kBatch = 32;

  // With room for `shared_receives` of its own and `entries` more, or as many as the device has.
  // Tells `offloads` when the device makes none with time stamps.
  static Result<CompletionQueue> create(const VerbsDevice& device, ibv_pd* domain,
                                        uint32_t shared_receives, uint32_t entries,
                                        Offloads& offloads);

  ibv_cq* queue() const { return queue_.get(); }
  ibv_srq* shared_receives() const { return receives_.get(); }

  // Sets room for `entries` completions aside; false when there is none.
  bool reserve(uint32_t entries);
  void give_back(uint32_t entries) { free_ += entries; }

  // What has completed, at most kBatch; valid until the next call. Empty: nothing. A queue that
  // fails (the device is gone) has nothing any more: error() tells.
  std::span<const ibv_wc> poll(Instant now);
  // How late one of these was seen, by its time stamp: a send that succeeded; 0: not known.
  Duration lateness(size_t index, Instant now);
  // The device stamps completions, and the stamps make no sense.
  bool distrusts_stamps() const { return clock_.has_value() && !clock_->trusted(); }
  int error() const { return error_; }

  // A shared receive request was used up: gives new ones to the device, in batches.
  void on_receive_used();
  // A queue pair is destroyed: what it had used up and not told of is gone with it. Gives the
  // device as many as it takes.
  void refill_receives();

  // What wakes one who waits: any completion, or only what the peer says is worth it (arrivals).
  enum class Wake : uint8_t { kAny, kSolicited };
  // From here on wait_fd() becomes readable when such a thing completes; false when anything has.
  bool prepare_to_wait(Wake wake);
  int wait_fd() const { return channel_->fd; }

 private:
  CompletionQueue() = default;
  Result<void> set_up(const VerbsDevice& device, ibv_pd* domain, uint32_t shared_receives,
                      uint32_t entries, Offloads& offloads);
  // errno, where there is none.
  int make_queue(const VerbsDevice& device, uint32_t entries, Offloads& offloads);
  int post_receives(uint32_t count);
  size_t take();
  int poll_stamped();

  // Each is made from those before it.
  ChannelHandle channel_;
  CompletionQueueHandle queue_;
  ibv_cq_ex* stamped_ = nullptr;  // the same, where it has time stamps
  SharedReceivesHandle receives_;
  uint32_t free_ = 0;
  uint32_t receives_room_ = 0;  // of the shared receive queue
  uint32_t receives_used_ = 0;
  uint32_t receives_batch_ = 0;
  int error_ = 0;
  std::optional<Wake> armed_;  // for wait_fd(), and nothing has completed since
  size_t stashed_ = 0;         // polled by prepare_to_wait
  std::array<ibv_wc, kBatch> completions_;
  std::array<uint64_t, kBatch> stamps_;  // of successful sends
  std::optional<DeviceClock> clock_;     // where there are time stamps
  Instant emptied_;                      // when nothing was left here the last time
  Instant emptied_before_;               // likewise, before what was polled last
};

}  // namespace pacecar
