// CompletionQueue: the one completion queue of a NIC, and the receive requests that its queue pairs
// share. The queue never overflows: each queue pair reserves room for all that it may have
// outstanding. Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/units.h"
#include "transport/verbs/device.h"
#include "transport/verbs/device_clock.h"

namespace pacecar {

// The value of PACECAR_EXPERT_VERBS_WITHOUT, a list of offloads; there is one: time_stamps. True:
// it is not used. Error: kInvalidArgument.
Result<bool> parse_without_stamps(std::string_view text);

class CompletionQueue {
 public:
  static constexpr size_t kBatch = 32;

  // With room for the completions of `shared_receives` and for `entries` more, or as many as the
  // device allows. With time stamps where the device has them, except `without_stamps`.
  static Result<CompletionQueue> create(const VerbsDevice& device, ibv_pd* domain,
                                        uint32_t shared_receives, uint32_t entries,
                                        bool without_stamps);

  ibv_cq* queue() const { return queue_.get(); }
  ibv_srq* shared_receives() const { return receives_.get(); }
  std::string offloads() const;  // "offloads: none; no time_stamps: the device has none"

  bool reserve(uint32_t entries);  // Reserves room for `entries` completions; false: no room.
  void give_back(uint32_t entries) { free_ += entries; }

  // Completions, at most kBatch; valid until the next call. A failed queue (the device is gone)
  // returns none: see error().
  std::span<const ibv_wc> poll(Instant now);
  // How late completion `index`, of a successful send, was polled, by its time stamp; 0: unknown.
  Duration lateness(size_t index, Instant now);
  // The device stamps completions, and the stamps make no sense.
  bool distrusts_stamps() const { return clock_.has_value() && !clock_->trusted(); }
  int error() const { return error_; }

  void on_receive_used();  // A shared receive request was consumed: posts new ones, in batches.
  // After a queue pair is destroyed with receive requests: posts as many as the device takes.
  void refill_receives();

  // Which completions wake a sleeping thread: any, or only solicited ones (arrivals).
  enum class Wake : uint8_t { kAny, kSolicited };
  // From now on wait_fd() is readable at such a completion. Then poll: one may have come before.
  void notify(Wake wake);
  // The owner makes it non-blocking.
  int wait_fd() const { return channel_->fd; }

 private:
  CompletionQueue() = default;
  // 0 or errno.
  int make_queue(const VerbsDevice& device, uint32_t entries);
  int post_receives(uint32_t count);
  int poll_stamped();

  // Each is made from those before it.
  ChannelHandle channel_;
  CompletionQueueHandle queue_;
  ibv_cq_ex* stamped_ = nullptr;  // the same queue, if it has time stamps
  std::string no_stamps_;         // why it has none
  SharedReceivesHandle receives_;
  uint32_t free_ = 0;
  uint32_t receives_room_ = 0;  // of the shared receive queue
  uint32_t receives_used_ = 0;
  uint32_t receives_batch_ = 0;
  int error_ = 0;
  std::optional<Wake> armed_;  // notification is armed, and nothing has completed since
  std::array<ibv_wc, kBatch> completions_;
  std::array<uint64_t, kBatch> stamps_;  // of successful sends
  std::optional<DeviceClock> clock_;     // only with time stamps
  Instant emptied_;                      // when the queue was last found empty
  Instant emptied_before_;               // the same time, as it was before the last poll
};

}  // namespace pacecar
