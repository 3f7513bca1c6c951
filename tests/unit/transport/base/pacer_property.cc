// The pacer against the ideal line in exact or wide arithmetic.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "transport/base/pacer.h"
#include "transport/base/prng.h"

namespace pacecar::pacer_property {
namespace {

constexpr uint64_t kSlowest = 1'000;
constexpr uint64_t kFastest = 1'600'000'000'000;

// Logarithmically uniform.
Rate random_rate(Prng& prng) {
  const double decades = std::log10(static_cast<double>(kFastest) / kSlowest);
  const double fraction = static_cast<double>(prng.below(1U << 20)) / (1U << 20);
  return Rate::from_bps(
      static_cast<uint64_t>(static_cast<double>(kSlowest) * std::pow(10, decades * fraction)));
}

Duration up_to(Prng& prng, Duration most) {
  return Duration::from_ns(static_cast<int64_t>(prng.below(static_cast<uint64_t>(most.ns()) + 1)));
}

SendGrid grid_around(Prng& prng, Instant now, Duration period) {
  return {now + up_to(prng, period), period, up_to(prng, period)};
}

Pacer pacer_at(Rate rate, Bytes catch_up) {
  Pacer pacer(catch_up);
  pacer.set_rate(rate, Instant());
  return pacer;
}

// For a flow that has sent `bytes`, its last packets in time.
void check_on_the_line(const Pacer& pacer, unsigned __int128 bytes) {
  // The first instant, in whole nanoseconds, by which the ideal line has sent them.
  const uint64_t bps = pacer.rate().bps();
  const auto ideal = static_cast<int64_t>((bytes * 8'000'000'000U + bps - 1) / bps);
  RC_ASSERT(pacer.next_send().ns() >= ideal);
  RC_ASSERT(pacer.next_send().ns() <= ideal + 1);
}

RC_GTEST_PROP(Pacer, LongRunRateIsExactWhenPollsAreLate, (uint64_t seed)) {
  constexpr Bytes kCatchUp = 64 << 10;
  constexpr int kPackets = 2'000;
  Prng prng(seed);
  const Rate rate = random_rate(prng);
  const int64_t lateness_ns = rate.time_for(kCatchUp - 1'000).ns();
  Pacer pacer = pacer_at(rate, kCatchUp);
  unsigned __int128 bytes_sent = 0;
  Instant now;
  for (int i = 0; i < kPackets; ++i) {
    const auto late = static_cast<int64_t>(prng.below(static_cast<uint64_t>(lateness_ns)));
    now = std::max(now, pacer.next_send() + Duration::from_ns(late));
    const Bytes size = 64 + prng.below(9'000);
    pacer.on_sent(size, now);
    bytes_sent += size;
  }
  check_on_the_line(pacer, bytes_sent);
}

// As above, with a catch-up of one packet only. Packets that catch up leave at least about 3/4 of a
// gap apart.
RC_GTEST_PROP(Pacer, LongRunRateIsExactWhenLatenessIsExcused, (uint64_t seed)) {
  constexpr Bytes kPacket = 4'000;
  constexpr int kPackets = 2'000;
  Prng prng(seed);
  const Rate rate = random_rate(prng);
  const Duration gap = rate.time_for(kPacket);
  Pacer pacer = pacer_at(rate, kPacket);
  Instant now;
  for (int i = 0; i < kPackets; ++i) {
    // Some packets of the first half are late by up to ten gaps.
    const bool late = i < kPackets / 2 && prng.chance(0.01);
    const Instant earliest = std::max(now, pacer.next_send());
    RC_ASSERT(i == 0 || (earliest - now).ns() >= gap.ns() / 8 * 7 - 1 - gap.ns() / 8);
    now = earliest + (late ? Duration::from_ns(static_cast<int64_t>(
                                 prng.below(static_cast<uint64_t>(10 * gap.ns()))))
                           : Duration());
    pacer.excuse(now, gap / 8, gap * 10'000);
    pacer.on_sent(kPacket, now);
  }
  check_on_the_line(pacer, kPackets * kPacket);
}

RC_GTEST_PROP(Pacer, FlowExceedsTheLineByAtMostCatchUpAndOnePacket, (uint64_t seed)) {
  constexpr int kPackets = 1'000;
  constexpr __int128 kUnitsPerByte = 8'000'000'000;  // bit-nanoseconds
  Prng prng(seed);
  const Rate rate = random_rate(prng);
  const Bytes catch_up = prng.below(100'000);
  // The period of the grids to which the flow is moved at random; 0: never moved.
  const int64_t period_ns = prng.chance(0.5) ? up_to(prng, rate.time_for(16'000)).ns() : 0;
  const __int128 most = static_cast<__int128>(catch_up) * kUnitsPerByte +
                        static_cast<__int128>(rate.bps()) * (period_ns * 3 / 2 + 1);
  Pacer pacer = pacer_at(rate, catch_up);
  const auto longest_late = static_cast<uint64_t>(rate.time_for(2 * catch_up + 1).ns());
  // The most bit-nanoseconds by which any interval that ends now exceeds the line, without this
  // packet.
  __int128 ahead = 0;
  Instant last;
  for (int i = 0; i < kPackets; ++i) {
    const auto late = Duration::from_ns(static_cast<int64_t>(prng.below(longest_late)));
    const Instant now = std::max(last, pacer.next_send() + late);
    ahead = std::max<__int128>(0, ahead - static_cast<__int128>(rate.bps()) * (now - last).ns());
    RC_ASSERT(ahead <= most);
    const Bytes size = 1 + prng.below(9'000);
    pacer.on_sent(size, now);
    if (prng.chance(0.5)) pacer.move_to(grid_around(prng, now, Duration::from_ns(period_ns)), now);
    ahead += static_cast<__int128>(size) * kUnitsPerByte;
    last = now;
  }
}

// A flow that is in time, moved to grids of one period and any phase.
RC_GTEST_PROP(Pacer, GridsDelayAFlowByAtMostAPeriodAndAdvanceItByHalf, (uint64_t seed)) {
  constexpr int kPackets = 1'000;
  constexpr Bytes kPacket = 4'000;
  Prng prng(seed);
  const Rate rate = random_rate(prng);
  const Duration gap = rate.time_for(kPacket);
  const Duration period = Duration::from_ns(1) + up_to(prng, gap * 2);
  Pacer pacer = pacer_at(rate, kPacket);
  int64_t moves = 0;
  for (int i = 0; i < kPackets; ++i) {
    pacer.on_sent(kPacket, pacer.next_send());
    if (prng.chance(0.5)) continue;
    const Instant now = pacer.next_send() - up_to(prng, gap);
    pacer.move_to(grid_around(prng, now, period), now);
    ++moves;
    const auto bytes = static_cast<unsigned __int128>(kPacket) * static_cast<unsigned>(i + 1);
    const auto ideal = static_cast<int64_t>(bytes * 8'000'000'000U / rate.bps());
    RC_ASSERT(pacer.next_send().ns() >= ideal - period.ns() / 2 - 1);
    RC_ASSERT(pacer.next_send().ns() <= ideal + period.ns() + 1 + moves);  // whole nanoseconds
  }
}

// The rate changes; the flow stops, starts and falls behind. The model counts bytes sent ahead of
// the line: negative while the flow is behind.
RC_GTEST_PROP(Pacer, RateChangesKeepBytesAheadOfTheLine, (uint64_t seed)) {
  constexpr int kSteps = 300;
  constexpr Bytes kCatchUp = 20'000;
  constexpr long double kByteNs = 8e9L;
  Prng prng(seed);
  Pacer pacer(kCatchUp);
  long double owed = 0;
  Instant now;
  for (int i = 0; i < kSteps; ++i) {
    if (prng.chance(0.4)) {
      const auto pass = Duration::from_ns(static_cast<int64_t>(prng.below(1'000'000)));
      now = now + pass;
      owed -= static_cast<long double>(pacer.rate().bps()) * pass.ns() / kByteNs;
      owed = std::max(owed, -static_cast<long double>(kCatchUp));
    } else if (prng.chance(0.5)) {
      const Bytes size = prng.below(30'000);
      pacer.on_sent(size, now);
      owed += size;
    } else {
      pacer.set_rate(prng.chance(0.2) ? Rate() : random_rate(prng), now);
    }
    if (pacer.rate() == Rate()) {
      RC_ASSERT(pacer.next_send() == Instant::never());
      continue;
    }
    const long double wait_ns = owed * kByteNs / pacer.rate().bps();
    const auto actual_ns = static_cast<long double>((pacer.next_send() - now).ns());
    // Rounding to whole nanoseconds, of the catch-up bound too: 200 bytes each at the fastest rate.
    const long double tolerance =
        2 + 1e-9L * std::abs(wait_ns) + 200 * kByteNs / pacer.rate().bps();
    RC_ASSERT(actual_ns <= wait_ns + tolerance);
    // The pacer applies the bound only when it is next used.
    if (owed > -static_cast<long double>(kCatchUp)) RC_ASSERT(actual_ns >= wait_ns - tolerance);
  }
}

}  // namespace
}  // namespace pacecar::pacer_property
