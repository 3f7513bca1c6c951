#include "tests/support/hostile_verbs/behavior.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

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

// Settings of HOSTILE_VERBS in addition to the seed.
using Member = std::variant<bool Behavior::*, uint8_t Behavior::*, uint32_t Behavior::*>;
constexpr std::array kMembers = std::to_array<std::pair<std::string_view, Member>>({
    {"clock_bits", &Behavior::clock_bits},
    {"clock_khz", &Behavior::clock_khz},
    {"completion_burst", &Behavior::completion_burst},
    {"late_completions", &Behavior::late_completions},
    {"late_landing", &Behavior::late_landing},
    {"late_reading", &Behavior::late_reading},
    {"late_receives", &Behavior::late_receives},
    {"max_inline", &Behavior::max_inline},
    {"max_reads", &Behavior::max_reads},
    {"relaxed_ordering", &Behavior::relaxed_ordering},
});

void set(Behavior& behavior, std::string_view name, uint64_t value) {
  const auto member =
      std::ranges::find(kMembers, name, &std::pair<std::string_view, Member>::first);
  if (member == kMembers.end()) {
    throw std::invalid_argument("HOSTILE_VERBS sets no " + std::string(name));
  }
  const auto assign = [&]<typename T>(T Behavior::*which) {
    behavior.*which = static_cast<T>(value);
  };
  std::visit(assign, member->second);
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
  b.idle_events = one_of(std::to_array<uint32_t>({0, 0, 50, 5'000}));
  b.clock_khz = one_of(std::to_array<uint32_t>({0, 156'250, 332'667, 1'000'000}));
  b.clock_bits = one_of(std::to_array<uint32_t>({64, 48, 24}));
  b.clock_fault =
      one_of(std::to_array<ClockFault>({ClockFault::kNone, ClockFault::kNone, ClockFault::kZero,
                                        ClockFault::kJumps, ClockFault::kSlow, ClockFault::kFast}));
  b.no_stamps = prng.below(8) == 0;
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
