// How a hostile device behaves, within what the specification or a manual allows. Drawn from a
// seed, or set by a test. A tick is a microsecond unless the device has a thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/base/units.h"

namespace pacecar::hostile {

// A fault of the clock of a device's time stamps.
enum class ClockFault : uint8_t {
  kNone,
  kZero,   // the clock stands at 0
  kJumps,  // some stamps are far ahead
  kSlow,   // half the frequency that the device reports
  kFast,   // twice the frequency
};

struct Behavior {
  uint64_t seed = 1;
  // Each device has a thread. Otherwise the devices work in turn() and when they are polled, and
  // one seed always gives one behavior.
  bool threaded = true;

  // --- the port ---
  bool infiniband = false;    // else RoCE v2
  bool grh_required = false;  // IBV_QPF_GRH_REQUIRED
  uint16_t pkey_table = 1;    // entries; the port is a full member in the last one only
  uint32_t mtu = 4096;
  uint32_t devices = 1;

  // --- how data reaches memory ---
  // Data lands up to this many ticks after its acknowledgement. It lands before its completion,
  // except in GPU memory, where only a read ensures that.
  uint32_t late_landing = 0;
  // Pieces of one queue pair's writes land in any order, also before earlier writes, as with
  // adaptive routing or PCIe's relaxed ordering; completions stay in order. This applies to all
  // memory. Memory registered with relaxed ordering always has it between two completions.
  bool relaxed_ordering = false;
  // Payload is read from memory up to this many ticks after the post.
  uint32_t late_reading = 0;

  // --- completions ---
  uint32_t late_completions = 0;  // ticks
  uint32_t late_receives = 0;     // more ticks, of completions of receives
  // Unsignaled requests get no completion when they are flushed. This is against the specification
  // (10.7.3.1), and so never drawn, but some drivers do it.
  bool quiet_flushes = false;
  // How long after a queue pair's failure its receives from a shared receive queue still complete;
  // then an event is raised.
  Duration late_last_receive;
  // Above 1: completions appear together, when this many have gathered or the first is due.
  uint32_t completion_burst = 1;

  // --- limits, as small as the specification allows ---
  uint32_t max_queue_pairs = 4096;
  uint32_t max_work_requests = 4096;  // of a queue
  uint32_t max_pieces = 4;            // of a request
  uint32_t max_completions = 65535;   // of a completion queue
  uint32_t max_shared_receives = 8192;
  uint32_t max_inline = 220;
  uint8_t max_reads = 16;           // in flight, as responder
  uint8_t max_reads_started = 128;  // in flight, as requester
  uint32_t max_completion_queues = 64;
  uint64_t max_region_bytes = UINT64_MAX;
  uint32_t max_regions = 1 << 16;

  // --- offloads ---
  uint32_t clock_khz = 0;    // of the clock that stamps completions; 0: no clock
  uint32_t clock_bits = 64;  // after which the clock wraps
  ClockFault clock_fault = ClockFault::kNone;
  bool no_stamps = false;  // completion queues refuse time stamps, in spite of the clock

  Duration registration;  // time of registering and deregistering a region
  Duration destruction;   // time of destroying a queue pair
  bool peer_memory = true;
  bool dma_buf = true;

  // About every `idle_events` ticks the device raises an event that requires no reaction; 0: none.
  uint32_t idle_events = 0;
};

Behavior draw_behavior(uint64_t seed);
// "seed=7,late_landing=50": the seed draws all members; the others set one each (behavior.cc lists
// them). Throws std::invalid_argument.
Behavior parse_behavior(std::string_view text);

}  // namespace pacecar::hostile
