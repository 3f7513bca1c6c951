// What a hostile device does of all that the specification, or a manual, lets a device do. Drawn
// from a seed, or set by hand.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/base/units.h"

namespace pacecar::hostile {

// What is wrong with the clock of a device's time stamps.
enum class ClockFault : uint8_t {
  kNone,
  kZero,   // it stands
  kJumps,  // now and then a stamp is far ahead
  kSlow,   // it runs at half of the frequency that the device tells
  kFast,   // at twice of it
};

struct Behavior {
  uint64_t seed = 1;
  // The devices work in a thread of their own. Otherwise they do so in turn() and whenever they are
  // polled; then the same seed does the same.
  bool threaded = true;

  // --- the port ---
  bool infiniband = false;    // else RoCE v2
  bool grh_required = false;  // IBV_QPF_GRH_REQUIRED
  uint16_t pkey_table = 1;    // entries; only in the last one the port is a full member
  uint32_t mtu = 4096;
  uint32_t devices = 1;

  // --- how data reaches memory ---
  // Data lands up to so many ticks after it was accepted, and acknowledged. What is told by a
  // completion is in place by then, but for a GPU's memory: there only a read makes sure.
  uint32_t late_landing = 0;
  // Pieces of what one queue pair writes land in any order, also before what is posted earlier, as
  // with adaptive routing or PCIe's relaxed ordering; completions keep theirs. In all memory;
  // where it was registered so, at least between two completions.
  bool relaxed_ordering = false;
  // Payload is read from memory up to so many ticks after it was posted.
  uint32_t late_reading = 0;

  // --- completions ---
  uint32_t late_completions = 0;  // ticks
  uint32_t late_receives = 0;     // likewise, beside those: completions of what has arrived
  // Requests that asked for no completion get none when they are flushed: against the specification
  // (10.7.3.1), and so never drawn, but known of drivers.
  bool quiet_flushes = false;
  // How long after a failure of a queue pair what it took from a shared receive queue still
  // completes; then an event says that it was the last.
  Duration late_last_receive;
  // More than one: they appear together, once there are so many or the first is due.
  uint32_t completion_burst = 1;

  // --- limits, as small as the specification allows ---
  uint32_t max_queue_pairs = 4096;
  uint32_t max_work_requests = 4096;  // of a queue
  uint32_t max_pieces = 4;            // of a request
  uint32_t max_completions = 65535;   // of a completion queue
  uint32_t max_shared_receives = 8192;
  uint32_t max_inline = 220;
  uint8_t max_reads = 16;           // at a time for the peer
  uint8_t max_reads_started = 128;  // at a time from the peer
  uint32_t max_completion_queues = 64;
  uint64_t max_region_bytes = UINT64_MAX;
  uint32_t max_regions = 1 << 16;

  // --- what not every device has ---
  bool calls = false;        // ibv_create_qp_ex and ibv_wr_*
  uint32_t clock_khz = 0;    // of the clock that stamps completions; 0: there is none
  uint32_t clock_bits = 64;  // it wraps
  ClockFault clock_fault = ClockFault::kNone;
  bool no_stamps = false;       // it has a clock, and no completion queue takes its stamps
  uint32_t rate_limit_max = 0;  // kbps; 0: no rate limits
  uint32_t rate_limit_min = 1;
  bool rate_limits_rc = true;    // for RC; else for raw packets only
  uint32_t rate_burst = 0;       // bytes that go beyond a limit at once
  uint32_t rate_commands = ~0U;  // so many limits are set; then each is refused, a lift too

  Duration registration;  // that one takes, and a deregistration
  Duration destruction;   // that the one of a queue pair takes
  bool peer_memory = true;
  bool dma_buf = true;

  // Every so many ticks, about, the device tells of something that nobody need care about.
  uint32_t idle_talk = 0;
};

Behavior draw_behavior(uint64_t seed);
// "seed=7,infiniband=1,mtu=1024": the seed draws all, the others are as said. Throws
// std::invalid_argument.
Behavior parse_behavior(std::string_view text);

}  // namespace pacecar::hostile
