// Optional offloads of a hostile device: posting by ibv_wr_*, time stamps of completions, rate
// limits. Each is as strict as its manual page.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/support/hostile_verbs/behavior.h"
#include "transport/base/prng.h"

namespace pacecar::hostile {

// Fills in the calls that a program makes through its context.
void offer_offloads(verbs_context& context);

// The time stamp of a completion now, in ticks of the device's clock.
uint64_t time_stamp(const Behavior& behavior, int64_t now_ns, Prng& prng);

// The requests of a queue pair between ibv_wr_start and ibv_wr_complete.
class RequestBuilder {
 public:
  // `operations`: of ibv_qp_create_send_ops_flags.
  void offer(ibv_qp_ex& queue_pair, uint64_t operations);
  bool offered() const { return operations_ != 0; }

  void start();
  void add(const ibv_qp_ex& queue_pair, ibv_wr_opcode opcode, uint64_t operation);
  // The request that was added last.
  ibv_send_wr& request() { return built_.back().request; }
  void set_piece(const ibv_sge& piece);
  void set_no_data();
  void set_inline(const void* bytes, size_t length);
  // The chain; nullptr where a rule was broken, or nothing was built.
  ibv_send_wr* finish();
  void clear() { built_.clear(), open_ = false; }
  bool broken() const { return broken_; }
  size_t size() const { return built_.size(); }

 private:
  struct Built {
    ibv_send_wr request{};
    ibv_sge piece{};
    std::vector<uint8_t> copied;
    uint32_t setters = 0;
  };

  bool last_takes_data();

  uint64_t operations_ = 0;
  bool open_ = false;
  bool broken_ = false;
  std::deque<Built> built_;  // addresses are stable
};

// The rate limit of a queue pair. A new limit applies from the next message on.
class SendLimit {
 public:
  // 0: no limit.
  void set(uint32_t kbps) { next_kbps_ = kbps; }
  uint32_t kbps() const { return next_kbps_; }
  void begin_message() { kbps_ = next_kbps_; }
  bool allows(int64_t now_ns) const { return kbps_ == 0 || free_ns_ <= now_ns; }
  // `burst` bytes may exceed the limit at once.
  void on_sent(uint64_t bytes, uint32_t burst, int64_t now_ns);

 private:
  uint32_t kbps_ = 0;
  uint32_t next_kbps_ = 0;
  int64_t free_ns_ = 0;
};

}  // namespace pacecar::hostile
