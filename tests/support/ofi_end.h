// A test's libfabric NIC with its memory and completions, in real time. Several of them in one
// process can connect to each other. Thread rule: one thread per NIC.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/monotonic_now.h"
#include "tests/support/waiting.h"
#include "transport/ofi/ofi_nic.h"

namespace pacecar::test {

// A provider that is available on every machine.
struct OfiKind {
  const char* name = "";  // in the names of test cases
  const char* provider = "";
  const char* domain = "";
  bool slow = false;  // a lost packet is retransmitted only after a long time
};
inline void PrintTo(const OfiKind& kind, std::ostream* out) { *out << kind.name; }

inline constexpr OfiKind kOfiTcp{"tcp", "tcp", "lo"};
inline constexpr OfiKind kOfiRxd{"rxd", "udp;ofi_rxd", "lo", true};

// The value of a result; an error is thrown as std::runtime_error.
template <typename T>
T need(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

// A peer's region, as its owner describes it.
struct OfiTarget {
  uint64_t address = 0;
  uint32_t key = 0;
};

class OfiEnd {
 public:
  struct Memory {
    std::vector<uint8_t> bytes;
    MemoryRegion region;

    OfiTarget target() const { return {region.remote_address, region.key}; }
  };
  static constexpr FlowLimits kUnlimited{.rate = Rate::from_gbps(1000), .window = 1 << 24};

  explicit OfiEnd(const OfiKind& kind, Duration silence_limit = Duration::from_s(10),
                  uint32_t paths = 1, std::optional<OfiNotification> notification = {}) {
    nic_ =
        need(OfiNic::open({.name = std::string("ofi:") + kind.provider,
                           .flows = 4,
                           .queue_pairs = 8,
                           .regions = 512,
                           .paths = paths,
                           .silence_limit = silence_limit,
                           .notification = notification},
                          need(choose_ofi_provider(kind.provider, kind.domain)), monotonic_now()));
    nic_->set_flow_limits(0, kUnlimited, monotonic_now());
  }

  OfiNic& nic() { return *nic_; }
  // Never moves.
  Memory& memory(size_t size, Access access, uint8_t first = 0) {
    Memory& memory = memory_.emplace_back();
    memory.bytes.resize(size);
    std::iota(memory.bytes.begin(), memory.bytes.end(), first);
    memory.region = need(nic_->register_memory(memory.bytes.data(), size, access));
    return memory;
  }
  static WorkRequest write(uint64_t id, const Memory& from, const OfiTarget& to) {
    return {.id = id,
            .local = from.region.address,
            .remote = to.address,
            .length = from.bytes.size(),
            .local_key = from.region.key,
            .remote_key = to.key,
            .immediate = static_cast<uint32_t>(id),
            .opcode = Opcode::kWriteWithImm};
  }
  bool post(QueuePairId id, const WorkRequest& request) {
    return nic_->post(id, {&request, 1}) == 1;
  }

  // False: there was nothing to do.
  bool step(Instant now = monotonic_now()) {
    size_t moved = nic_->receive(now);
    nic_->on_time(now);
    moved += nic_->transmit(now);
    std::array<Completion, 16> some;
    while (const size_t count = nic_->poll(some)) {
      moved += count;
      completions.insert(completions.end(), some.begin(), some.begin() + count);
      for (size_t i = 0; i < count; ++i) {
        if (some[i].kind == CompletionKind::kSent) ++finished_[some[i].queue_pair];
      }
    }
    if (moved == 0) sched_yield();
    return moved > 0;
  }

  const Completion* broken(QueuePairId id) const {
    const auto found = std::ranges::find_if(completions, [id](const Completion& completion) {
      return completion.queue_pair == id && completion.kind == CompletionKind::kBroken;
    });
    return found == completions.end() ? nullptr : &*found;
  }
  // The number of writes that have completed, with or without success.
  size_t finished(QueuePairId id) const {
    const auto found = finished_.find(id);
    return found == finished_.end() ? 0 : found->second;
  }
  size_t sent(QueuePairId id, CompletionStatus status = CompletionStatus::kOk) const {
    return std::ranges::count_if(completions, [&](const Completion& completion) {
      return completion.queue_pair == id && completion.kind == CompletionKind::kSent &&
             completion.status == status;
    });
  }
  size_t received(QueuePairId id) const {
    return std::ranges::count_if(completions, [id](const Completion& completion) {
      return completion.queue_pair == id && completion.kind == CompletionKind::kReceived;
    });
  }

  std::vector<Completion> completions;

 private:
  std::map<QueuePairId, size_t> finished_;
  std::deque<Memory> memory_;  // outlives the NIC
  std::unique_ptr<OfiNic> nic_;
};

// Polls the NICs until `done`; false: it hangs.
template <typename Done>
bool run_until(std::initializer_list<OfiEnd*> ends, Done done) {
  const Waiting whole;
  Waiting idle;
  while (!done()) {
    if (whole.hangs()) return false;
    bool moved = false;
    for (OfiEnd* end : ends) moved |= end->step();
    moved ? idle.restart() : idle.pause();
  }
  return true;
}

inline void join(OfiEnd& end, QueuePairId id, std::span<const uint8_t> peer) {
  if (auto joined = end.nic().connect_queue_pair(id, peer); !joined) {
    throw std::runtime_error(joined.error().message);
  }
}

struct OfiConnection {
  QueuePairId a = 0;
  QueuePairId b = 0;
};
inline OfiConnection connect(OfiEnd& a, OfiEnd& b, const QueuePairConfig& config = {}) {
  const OfiConnection ends{need(a.nic().create_queue_pair(config)),
                           need(b.nic().create_queue_pair(config))};
  const QueuePairAddress at_a = a.nic().queue_pair_address(ends.a);
  join(a, ends.a, b.nic().queue_pair_address(ends.b).view());
  join(b, ends.b, at_a.view());
  return ends;
}

// Keeps eight writes in flight on a queue pair, while it is polled.
class OfiLoad {
 public:
  OfiLoad(OfiEnd& end, QueuePairId id, const OfiEnd::Memory& from, const OfiTarget& to)
      : end_(end), id_(id), from_(from), to_(to) {}

  void top_up() {
    while (next_ < end_.finished(id_) + 8 && end_.post(id_, OfiEnd::write(next_, from_, to_))) {
      ++next_;
    }
  }

 private:
  OfiEnd& end_;
  QueuePairId id_;
  const OfiEnd::Memory& from_;
  OfiTarget to_;
  uint64_t next_ = 0;
};

}  // namespace pacecar::test
