// VerbsNic: an RDMA NIC of the machine, through libibverbs: RC queue pairs over RoCE v2 or
// InfiniBand. A data queue pair has several lanes, each with a path of its own through the network;
// posted work requests wait here until the flow's limits allow each chunk. Thread rule: one thread
// at a time, except wait_fd() and the registration of memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/log.h"
#include "transport/base/work_list.h"
#include "transport/nic/paced/paced_nic.h"
#include "transport/verbs/completions.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/flush_pair.h"
#include "transport/verbs/hardware_counters.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/queue_pair.h"

namespace pacecar {

struct VerbsConfig {
  std::string device;  // mlx5_0
  uint32_t port = 1;
  std::optional<uint32_t> gid_index;  // none: chosen by choose_gid
  uint32_t flows = 256;
  uint32_t queue_pairs = 512;
  uint32_t regions = 4096;
  uint32_t paths = 4;  // lanes of a data queue pair; at most RcEndpoint::kMaxLanes are used
  Bytes chunk = 0;     // largest write; 0: kDefaultChunk
  uint32_t traffic_class = 0;
  uint32_t control_traffic_class = 184;
  uint32_t pkey_index = 0;
  uint32_t service_level = 0;                     // on InfiniBand
  Rate line_rate;                                 // 0: the device's rate
  bool without_stamps = false;                    // completions get no time stamps
  Duration silence_limit = Duration::from_s(36);  // a peer that is silent for this time is dead
  Address address;                                // of this host, for the bootstrap
  LogSink log;
};

class VerbsNic final : public PacedNic<VerbsQueuePair> {
 public:
  static constexpr Bytes kDefaultChunk = 64 << 10;

  // Errors: as VerbsDevice::open, and the device's refusals.
  static Result<std::unique_ptr<VerbsNic>> open(const VerbsConfig& config, Instant now);
  ~VerbsNic() override { queue_pairs_.clear(); }  // before the domain

  const VerbsDevice& device() const { return device_; }
  // For tests: stops the connection of a lane, as a device does after its last retry.
  void upset_lane(QueuePairId id, size_t lane) { stop_lane(find(id)->lanes[lane]); }

  // --- Nic ---
  std::vector<HardwareCounter> hardware_counters() const override {
    return hardware_counters_.deltas();
  }
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override {
    return registrations_.add(address, length, access);
  }
  Result<MemoryRegion> register_dmabuf(const DmaBufMemory& memory, Access access) override {
    return registrations_.add_dmabuf(memory, access);
  }
  Result<std::optional<uint64_t>> start_flush(const MemoryRegion& region,
                                              const uint8_t* data) override;
  Result<bool> flushed(uint64_t flush) override;
  // Waits, for a limited time, until the device is done with it; lanes that are not are replaced.
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override;
  bool shared(const MemoryRegion& region) const override {
    return !registrations_.last(region.key);
  }
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override;
  QueuePairAddress queue_pair_address(QueuePairId id) const override;
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override;
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override;
  void halt_queue_pair(QueuePairId id) override;
  void destroy_queue_pair(QueuePairId id) override;

  // --- NicPort ---
  size_t receive(Instant now) override;
  void on_time(Instant now) override;
  Instant next_deadline() const override;
  bool prepare_to_wait(Instant now) override;
  int wait_fd() const override { return wait_fd_.get(); }

 private:
  using QueuePair = VerbsQueuePair;

  // The lane that a queue pair of the device belongs to.
  struct LaneRef {
    QueuePair* queue_pair = nullptr;
    uint8_t lane = 0;  // or StandbyLane::kLaneNumber
  };

  VerbsNic(const VerbsConfig& config, VerbsDevice device, DomainHandle domain,
           CompletionQueue completions, Instant now);
  Result<void> set_up_waiting();
  static NicCaps make_caps(const VerbsConfig& config, const VerbsDevice& device, ibv_pd* domain,
                           const CompletionQueue& completions);

  // By the number that the device gave its queue pair; nullptr: unknown.
  LaneRef find_lane(uint32_t number) const;
  LaneConfig lane_config(const QueuePairConfig& config) const;
  uint32_t lanes_of(const QueuePairConfig& config) const;
  Result<void> make_lanes(QueuePair& qp);
  void index_lanes(QueuePair& qp);
  // The connection is gone: the results of its outstanding work requests are unknown.
  void on_results_lost(QueuePair& qp, Lane& lane);
  // Destroys the device's queue pairs: from then on the device uses none of their memory.
  void drop_lanes(QueuePair& qp);
  void break_queue_pair(QueuePair& qp, CompletionStatus status, std::string fault);
  void on_device_failed(std::string_view what);
  FaultPlace place_of(const QueuePair& qp) const;

  // Ends the lanes whose work requests use the memory of this key, or the whole queue pair.
  void stop_using(QueuePair& qp, uint32_t key);
  // Waits until the device is done with the memory; false: it takes too long.
  bool wait_until_unused(uint32_t key);

  // --- receiving --- `late`: how late the completion was polled.
  void on_completion(const ibv_wc& completion, Duration late, Instant now);
  void on_sent(QueuePair& qp, const VerbsWorkId& id, const ibv_wc& completion, Duration late,
               Instant now);
  void on_received(const ibv_wc& completion);
  void poll_events();
  void on_event(const ibv_async_event& event);
  // The lane with this number at the device has failed.
  void on_lane_failed(uint32_t number, std::string_view event);

  // --- failed lanes --- Breaks the queue pair if its lanes cannot come back.
  void fail_lane(QueuePair& qp, Lane& lane, CompletionStatus status, std::string fault);
  void on_standby(QueuePair& qp, const ibv_wc& completion);
  void on_standby_message(QueuePair& qp, const RecoveryMessage& message);
  void on_standby_failed(QueuePair& qp);
  void watch_lanes(Instant now);
  void recover(Instant now);
  void recover_queue_pair(QueuePair& qp, bool path_ready, Instant now);
  // True: the step is done, and the next one may follow.
  bool take_step(QueuePair& qp, Lane& lane, LaneRecovery::Step step, Instant now);
  bool drained(const QueuePair& qp, Lane& lane, Instant now);
  bool replace_lane(QueuePair& qp, Lane& lane, Instant now);
  bool join_lane(QueuePair& qp, Lane& lane);
  bool send_to_peer(QueuePair& qp, Lane& lane, RecoveryMessage::Kind kind);
  bool drain(Instant now);       // Polls all completions; false: received_ has no room for more.
  bool path_ready(Instant now);  // Whether the port has been active for kSettling.
  // `fault`, or "the link is down" if that is so.
  std::string likely_cause(const QueuePair& qp, std::string fault) const;

  // --- transmitting ---
  const WorkRequest* waiting(uint32_t slot) const override;
  size_t send(QueuePair& qp, PacedFlows::Turn* turn) override;

  VerbsConfig config_;
  // Each is made from those before it.
  VerbsDevice device_;
  DomainHandle domain_;
  Registrations registrations_;
  CompletionQueue completions_;
  HardwareCounters hardware_counters_;
  std::unique_ptr<FlushPair> flushes_;             // made for the first one
  std::unordered_map<uint32_t, LaneRef> by_lane_;  // by the device's number
  WorkList recovering_;          // slots of queue pairs with lanes that are not up
  const uint32_t most_started_;  // capacity of a queue of the device, less one for LaneEnd::marked
  FileDescriptor wait_fd_;
  Instant next_event_poll_;
  Instant next_recovery_;
  Instant next_watch_;
  size_t started_ = 0;     // work requests at the device
  Instant path_ready_at_;  // by the port's last state; never(): it was down
  bool device_failed_ = false;
  std::string device_fault_;  // why, for people
  bool distrust_reported_ = false;
};

}  // namespace pacecar
