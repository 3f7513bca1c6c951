// NICs that are connected through memory: posted work is executed when the test calls turn(), in
// the order of posting. For tests and fuzzers of the layers above NICs: a test plays a peer with
// write() and complete(). One thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "transport/base/check.h"
#include "transport/nic/nic.h"
#include "transport/wire/big_endian.h"

namespace pacecar::test {

class MemoryNic final : public Nic {
 public:
  static constexpr Bytes kWriteBytes = 4096;
  static constexpr uint32_t kQueuePairs = 64;

  // `all`: the NICs by number, this one at `number`; NICs outlive each other's queue pairs.
  MemoryNic(std::vector<MemoryNic*>& all, uint32_t number) : all_(all), number_(number) {
    caps_ = {.line_rate = Rate::from_gbps(100),
             .mtu = 1024,
             .packet_overhead = 66,
             .burst_bytes = 4096,
             .flows = 16,
             .queue_pairs = kQueuePairs,
             .regions = 512,
             .write_bytes = kWriteBytes,
             .software = true,
             .networks = {"memory"}};
    all_.push_back(this);
  }

  // --- the peer's operations ---
  // False without writing if the key, its bounds or its rights forbid the write.
  bool write(uint32_t key, uint64_t address, std::span<const uint8_t> bytes) {
    const auto found = regions_.find(key);
    if (found == regions_.end() || !allows(found->second.access, Access::kRemoteWrite))
      return false;
    const MemoryRegion& region = found->second.region;
    const uint64_t offset = address - region.remote_address;
    if (offset > region.length || bytes.size() > region.length - offset) return false;
    if (!bytes.empty()) std::memcpy(region.address + offset, bytes.data(), bytes.size());
    return true;
  }
  void complete(const Completion& completion) { completions_.push_back(completion); }
  bool has(QueuePairId id) const { return queue_pairs_.contains(id); }
  void break_queue_pair(QueuePairId id) {
    const auto found = queue_pairs_.find(id);
    if (found == queue_pairs_.end() || found->second.broken) return;
    found->second.broken = true;
    found->second.posted.clear();
    complete({.queue_pair = id,
              .kind = CompletionKind::kBroken,
              .status = CompletionStatus::kRetryExceeded});
  }

  // Executes up to `count` work requests of each queue pair.
  void turn(size_t count) {
    for (auto& [id, queue_pair] : queue_pairs_) {
      for (size_t i = 0; i < count && !queue_pair.posted.empty() && !queue_pair.broken; ++i) {
        const WorkRequest request = queue_pair.posted.front();
        queue_pair.posted.pop_front();
        execute(id, queue_pair, request);
      }
    }
  }

  // --- Nic ---
  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return counters_; }
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override {
    const auto start = reinterpret_cast<uintptr_t>(address);
    const uint32_t key = next_key_ += 0x9E37;
    const MemoryRegion region{.address = static_cast<uint8_t*>(address),
                              .length = length,
                              .key = key,
                              .remote_address = (uint64_t{key} << 24) + start % kRemoteAlignment};
    regions_[key] = {region, access};
    return region;
  }
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override {
    PACECAR_CHECK(regions_.erase(region.key) == 1);
    return nullptr;
  }
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override {
    if (queue_pairs_.size() == kQueuePairs) return fail(ErrorCode::kUnavailable, "all are used");
    queue_pairs_[next_queue_pair_].most = config.work_requests;
    return next_queue_pair_++;
  }
  QueuePairAddress queue_pair_address(QueuePairId id) const override {
    QueuePairAddress address{.size = 8};
    wire::store_be32(number_, address.bytes.data());
    wire::store_be32(id, address.bytes.data() + 4);
    return address;
  }
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override {
    if (remote.size() != 8 || wire::load_be32(remote.data()) >= all_.size()) {
      return fail(ErrorCode::kPeer, "no address of such a NIC");
    }
    QueuePair& queue_pair = queue_pairs_.at(id);
    queue_pair.peer = all_[wire::load_be32(remote.data())];
    queue_pair.remote = wire::load_be32(remote.data() + 4);
    return {};
  }
  QueuePairMemory queue_pair_memory(const QueuePairConfig&) const override { return {}; }
  void destroy_queue_pair(QueuePairId id) override { PACECAR_CHECK(queue_pairs_.erase(id) == 1); }
  size_t post(QueuePairId id, std::span<const WorkRequest> requests) override {
    QueuePair& queue_pair = queue_pairs_.at(id);
    PACECAR_CHECK(queue_pair.peer != nullptr);
    if (queue_pair.broken) return 0;
    size_t taken = 0;
    for (; taken < requests.size() && queue_pair.posted.size() < queue_pair.most; ++taken) {
      PACECAR_CHECK(covers(requests[taken]));
      queue_pair.posted.push_back(requests[taken]);
    }
    return taken;
  }
  size_t poll(std::span<Completion> completions) override {
    const size_t count = std::min(completions.size(), completions_.size());
    std::copy_n(completions_.begin(), count, completions.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<long>(count));
    return count;
  }
  size_t poll_signals(std::span<FlowSignal>) override { return 0; }
  void report_arrivals(bool) override {}
  size_t poll_arrivals(std::span<FlowArrival>) override { return 0; }
  void set_flow_limits(FlowId, const FlowLimits&, Instant) override {}

 private:
  struct Region {
    MemoryRegion region;
    Access access = Access::kLocalRead;
  };
  struct QueuePair {
    MemoryNic* peer = nullptr;
    QueuePairId remote = 0;
    size_t most = 0;
    bool broken = false;
    std::deque<WorkRequest> posted;
  };

  bool covers(const WorkRequest& request) const {
    if (request.length == 0) return true;
    const auto found = regions_.find(request.local_key);
    if (found == regions_.end()) return false;
    const MemoryRegion& region = found->second.region;
    const auto offset = static_cast<uint64_t>(request.local - region.address);
    return offset <= region.length && request.length <= region.length - offset;
  }
  void execute(QueuePairId id, QueuePair& queue_pair, const WorkRequest& request) {
    if (!queue_pair.peer->has(queue_pair.remote)) return break_queue_pair(id);
    CompletionStatus status = CompletionStatus::kMemoryGone;
    if (covers(request)) {
      const bool done =
          request.length == 0 || queue_pair.peer->write(request.remote_key, request.remote,
                                                        {request.local, request.length});
      status = done ? CompletionStatus::kOk : CompletionStatus::kRemoteAccessError;
    }
    if (status == CompletionStatus::kOk && request.opcode == Opcode::kWriteWithImm) {
      queue_pair.peer->complete({.bytes = request.length,
                                 .queue_pair = queue_pair.remote,
                                 .immediate = request.immediate,
                                 .kind = CompletionKind::kReceived});
    }
    if (!request.signaled && status == CompletionStatus::kOk) return;
    complete({.work_request = request.id,
              .queue_pair = id,
              .kind = CompletionKind::kSent,
              .status = status});
  }

  std::vector<MemoryNic*>& all_;
  uint32_t number_;
  NicCaps caps_;
  NicCounters counters_;
  std::map<uint32_t, Region> regions_;
  std::map<QueuePairId, QueuePair> queue_pairs_;
  std::deque<Completion> completions_;
  uint32_t next_key_ = 0x1000;
  QueuePairId next_queue_pair_ = 1;
};

}  // namespace pacecar::test
