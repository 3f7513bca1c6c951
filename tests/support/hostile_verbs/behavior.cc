#include "tests/support/hostile_verbs/behavior.h"

#include <array>
#include <charconv>
#include <stdexcept>
#include <string>

#include "transport/base/prng.h"

namespace pacecar::hostile {
namespace {

uint64_t number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number: " + std::string(text));
  }
  return value;
}

template <typename Value, typename T>
bool set(std::string_view name, Value value, std::string_view wanted, T& member) {
  if (name == wanted) member = static_cast<T>(value);
  return name == wanted;
}

void set(Behavior& b, std::string_view name, uint64_t value) {
  const bool known =
      set(name, value, "threaded", b.threaded) || set(name, value, "infiniband", b.infiniband) ||
      set(name, value, "grh_required", b.grh_required) ||
      set(name, value, "pkey_table", b.pkey_table) || set(name, value, "mtu", b.mtu) ||
      set(name, value, "devices", b.devices) || set(name, value, "late_landing", b.late_landing) ||
      set(name, value, "relaxed_ordering", b.relaxed_ordering) ||
      set(name, value, "late_reading", b.late_reading) ||
      set(name, value, "late_completions", b.late_completions) ||
      set(name, value, "late_receives", b.late_receives) ||
      set(name, value, "completion_burst", b.completion_burst) ||
      set(name, value, "max_queue_pairs", b.max_queue_pairs) ||
      set(name, value, "max_work_requests", b.max_work_requests) ||
      set(name, value, "max_completions", b.max_completions) ||
      set(name, value, "max_shared_receives", b.max_shared_receives) ||
      set(name, value, "max_inline", b.max_inline) || set(name, value, "max_reads", b.max_reads) ||
      set(name, value, "max_regions", b.max_regions) ||
      set(name, value, "max_pieces", b.max_pieces) ||
      set(name, value, "max_reads_started", b.max_reads_started) ||
      set(name, value, "max_completion_queues", b.max_completion_queues) ||
      set(name, value, "max_region_bytes", b.max_region_bytes) ||
      set(name, value, "idle_talk", b.idle_talk) ||
      set(name, value, "quiet_flushes", b.quiet_flushes) ||
      set(name, value, "peer_memory", b.peer_memory) || set(name, value, "dma_buf", b.dma_buf) ||
      set(name, value, "calls", b.calls) || set(name, value, "clock_khz", b.clock_khz) ||
      set(name, value, "clock_bits", b.clock_bits) ||
      set(name, value, "clock_fault", b.clock_fault) ||
      set(name, value, "no_stamps", b.no_stamps) ||
      set(name, value, "rate_limit_max", b.rate_limit_max) ||
      set(name, value, "rate_limit_min", b.rate_limit_min) ||
      set(name, value, "rate_limits_rc", b.rate_limits_rc) ||
      set(name, value, "rate_burst", b.rate_burst) ||
      set(name, value, "rate_commands", b.rate_commands);
  if (known) return;
  const auto time = Duration::from_us(static_cast<int64_t>(value));
  const bool taken = set(name, time, "registration_us", b.registration) ||
                     set(name, time, "destruction_us", b.destruction) ||
                     set(name, time, "late_last_receive_us", b.late_last_receive);
  if (!taken) throw std::invalid_argument("a device has no " + std::string(name));
}

}  // namespace

Behavior draw_behavior(uint64_t seed) {
  Prng prng(seed);
  const auto one_of = [&](const auto& values) { return values[prng.below(std::size(values))]; };
  Behavior b{.seed = seed};
  b.infiniband = prng.below(2) == 0;
  b.grh_required = b.infiniband && prng.below(2) == 0;
  b.pkey_table = one_of(std::to_array<uint16_t>({1, 1, 8}));
  b.mtu = one_of(std::to_array<uint32_t>({256, 1024, 4096}));
  b.late_landing = one_of(std::to_array<uint32_t>({0, 3, 50}));
  b.relaxed_ordering = prng.below(4) == 0;
  b.late_reading = one_of(std::to_array<uint32_t>({0, 3, 50}));
  b.late_completions = one_of(std::to_array<uint32_t>({0, 5, 200}));
  b.late_receives = one_of(std::to_array<uint32_t>({0, 0, 100, 6'000}));
  b.completion_burst = one_of(std::to_array<uint32_t>({1, 1, 16, 4096}));
  b.max_work_requests = one_of(std::to_array<uint32_t>({256, 4096, 32768}));
  b.max_inline = one_of(std::to_array<uint32_t>({0, 64, 220, 956}));
  b.max_reads = one_of(std::to_array<uint8_t>({1, 4, 16, 128}));
  b.max_shared_receives = one_of(std::to_array<uint32_t>({128, 4096, 32767}));
  b.late_last_receive = Duration::from_us(one_of(std::to_array<int64_t>({0, 0, 100, 3'000})));
  b.max_pieces = one_of(std::to_array<uint32_t>({1, 4, 30}));
  b.max_reads_started = one_of(std::to_array<uint8_t>({1, 16, 128}));
  b.max_completion_queues = one_of(std::to_array<uint32_t>({2, 64}));
  b.idle_talk = one_of(std::to_array<uint32_t>({0, 0, 50, 5'000}));
  b.calls = prng.below(2) == 0;
  b.clock_khz = one_of(std::to_array<uint32_t>({0, 156'250, 332'667, 1'000'000}));
  b.clock_bits = one_of(std::to_array<uint32_t>({64, 48, 24}));
  b.clock_fault =
      one_of(std::to_array<ClockFault>({ClockFault::kNone, ClockFault::kNone, ClockFault::kZero,
                                        ClockFault::kJumps, ClockFault::kSlow, ClockFault::kFast}));
  b.no_stamps = prng.below(8) == 0;
  b.rate_limit_max = one_of(std::to_array<uint32_t>({0, 10'000'000, 100'000'000}));
  b.rate_limit_min = one_of(std::to_array<uint32_t>({1, 1'000'000}));
  b.rate_limits_rc = prng.below(4) != 0;
  b.rate_burst = one_of(std::to_array<uint32_t>({0, 16 << 10, 1 << 20}));
  b.rate_commands = one_of(std::to_array<uint32_t>({~0U, ~0U, 3}));
  return b;
}

Behavior parse_behavior(std::string_view text) {
  Behavior behavior;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw std::invalid_argument("not NAME=NUMBER: " + std::string(item));
    }
    const std::string_view name = item.substr(0, equals);
    const uint64_t value = number(item.substr(equals + 1));
    if (name == "seed") {
      behavior = draw_behavior(value);
    } else {
      set(behavior, name, value);
    }
  }
  return behavior;
}

}  // namespace pacecar::hostile
