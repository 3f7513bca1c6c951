#include "transport/base/pacer.h"

namespace pacecar {
namespace {

// 0 .. period - 1
int64_t modulo_of(Duration span, int64_t period) {
  const int64_t rest = span.ns() % period;
  return rest < 0 ? rest + period : rest;
}

}  // namespace

void Pacer::set_rate(Rate rate, Instant now, Change change) {
  if (rate == rate_) return;
  const bool keep_schedule = change == Change::kFromNextPacket && rate_ != Rate() && rate != Rate();
  const auto catch_up = static_cast<Int128>(Uint128{catch_up_bytes_} * kUnitsPerByte);
  if (rate_ != Rate() && !keep_schedule) {
    if (hold_ <= now) {  // over; at a lower rate the credit earned since may lie before it
      begin_schedule_at(hold_);
      hold_ = kNoHold;
    }
    const auto bps = static_cast<Int128>(rate_.bps());
    const auto fraction_units = static_cast<Int128>((Uint128{fraction_} * rate_.bps()) >> 64);
    owed_ = std::max((Int128{next_.ns()} - now.ns()) * bps + fraction_units, -catch_up);
  }
  const auto behind = static_cast<Int128>(rate_.bps()) * behind_.ns();
  behind_ = {};
  rate_ = rate;
  if (rate == Rate()) return;

  const uint64_t bps = rate.bps();
  catch_up_ = clamped(catch_up / bps) - Instant();
  behind_ = clamped(behind / bps) - Instant();

  // Rounded up, so that the schedule never runs faster than the rate.
  ns_per_byte_ = kUnitsPerByte / bps;
  const Uint128 remainder = kUnitsPerByte % bps;
  const Uint128 fraction = ((remainder << 64) + bps - 1) / bps;
  ns_per_byte_ += static_cast<uint64_t>(fraction >> 64);
  ns_per_byte_fraction_ = static_cast<uint64_t>(fraction);

  if (keep_schedule) return;
  Int128 ns = owed_ / bps;
  if (owed_ % bps < 0) --ns;  // towards the past, so that the fraction is positive
  const auto rest = static_cast<Uint128>(owed_ - ns * bps);
  next_ = clamped(now.ns() + ns);
  fraction_ = static_cast<uint64_t>((rest << 64) / bps);
}

void Pacer::move_to(const SendGrid& grid, Instant now) {
  if (rate_ == Rate() || grid.period <= Duration()) return;
  const Instant scheduled = next_send();
  const Duration owed = std::max(moved_, grid.period * -1);  // earlier periods may have been longer
  const Instant wanted = std::max(scheduled - owed, std::min(scheduled, now));
  const int64_t period = grid.period.ns();
  const int64_t beyond = modulo_of(wanted - grid.point, period);
  Instant next = wanted - Duration::from_ns(beyond);
  const bool passed = scheduled >= now && next + grid.late < now;
  if (beyond * 2 > period || passed) next = next + grid.period;
  const Duration moved = owed + (next - scheduled);
  if (moved > grid.period) return;
  moved_ = moved;
  hold_ = kNoHold;
  next_ = next;
  fraction_ = 0;
}

}  // namespace pacecar
