// Time and rate as types, so that nanoseconds, bits and bytes cannot be mixed up.
// Instants come from one monotonic clock whose zero means nothing; the pure layers never read it.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace pacecar {

// A count of bytes. An alias: byte counts meet size_t, spans and memory addresses everywhere.
using Bytes = uint64_t;

// A signed span of time in nanoseconds.
class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration from_ns(int64_t ns) { return Duration(ns); }
  static constexpr Duration from_us(int64_t us) { return Duration(us * 1000); }
  static constexpr Duration from_ms(int64_t ms) { return Duration(ms * 1'000'000); }
  static constexpr Duration from_s(int64_t s) { return Duration(s * 1'000'000'000); }
  static constexpr Duration max() { return Duration(std::numeric_limits<int64_t>::max()); }

  constexpr int64_t ns() const { return ns_; }
  constexpr double real_ns() const { return static_cast<double>(ns_); }
  constexpr double us() const { return real_ns() * 1e-3; }
  constexpr double seconds() const { return real_ns() * 1e-9; }

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration d) const { return Duration(ns_ + d.ns_); }
  constexpr Duration operator-(Duration d) const { return Duration(ns_ - d.ns_); }
  constexpr Duration operator*(int64_t k) const { return Duration(ns_ * k); }
  constexpr Duration operator/(int64_t k) const { return Duration(ns_ / k); }
  constexpr Duration scaled(double k) const {
    return Duration(static_cast<int64_t>(real_ns() * k));
  }

 private:
  constexpr explicit Duration(int64_t ns) : ns_(ns) {}
  int64_t ns_ = 0;
};

// A point in time, in nanoseconds of the caller's monotonic clock.
class Instant {
 public:
  constexpr Instant() = default;
  static constexpr Instant from_ns(int64_t ns) { return Instant(ns); }
  // Later than every deadline: "no deadline".
  static constexpr Instant never() { return Instant(std::numeric_limits<int64_t>::max()); }

  constexpr int64_t ns() const { return ns_; }

  constexpr auto operator<=>(const Instant&) const = default;
  constexpr Instant operator+(Duration d) const { return Instant(ns_ + d.ns()); }
  constexpr Instant operator-(Duration d) const { return Instant(ns_ - d.ns()); }
  constexpr Duration operator-(Instant other) const { return Duration::from_ns(ns_ - other.ns_); }

 private:
  constexpr explicit Instant(int64_t ns) : ns_(ns) {}
  int64_t ns_ = 0;
};

// A rate in bits per second; zero means stopped.
class Rate {
 public:
  constexpr Rate() = default;
  static constexpr Rate from_bps(uint64_t bps) { return Rate(bps); }
  static constexpr Rate from_gbps(uint64_t gbps) { return Rate(gbps * 1'000'000'000); }

  constexpr uint64_t bps() const { return bps_; }
  constexpr double real_bps() const { return static_cast<double>(bps_); }
  constexpr double gbps() const { return real_bps() * 1e-9; }
  // Bytes that this rate moves in `d`, rounded down; 0 for a negative span.
  constexpr Bytes bytes_in(Duration d) const {
    if (d.ns() <= 0) return 0;
    return static_cast<Bytes>(static_cast<unsigned __int128>(bps_) * static_cast<uint64_t>(d.ns()) /
                              8'000'000'000U);
  }
  // Time that `bytes` take at this rate, rounded up; Duration::max() when stopped.
  constexpr Duration time_for(Bytes bytes) const {
    if (bps_ == 0) return Duration::max();
    const auto bit_ns = static_cast<unsigned __int128>(bytes) * 8'000'000'000U;
    return Duration::from_ns(static_cast<int64_t>((bit_ns + bps_ - 1) / bps_));
  }

  constexpr auto operator<=>(const Rate&) const = default;

 private:
  constexpr explicit Rate(uint64_t bps) : bps_(bps) {}
  uint64_t bps_ = 0;
};

}  // namespace pacecar
