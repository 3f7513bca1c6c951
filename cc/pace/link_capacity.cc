#include "cc/pace/link_capacity.h"

namespace pacecar {
namespace {

constexpr int64_t kWindowPackets = 16;  // fewer arrivals may all be late by chance
constexpr double kForget = 1.0 / 4;     // of X, per round trip
constexpr double kManyUncovered = 0.25;
constexpr double kMostDrain = 0.5;  // of what could be granted
constexpr double kWeight = 0.5;     // of the newest round trip in X

}  // namespace

LinkCapacity::LinkCapacity(const FlowEnvironment& environment, Duration round_trip,
                           Duration base_memory, const PaceConstants& constants)
    : packet_time_(environment.line_rate.time_for(environment.mtu + environment.overhead)),
      least_window_(std::max(round_trip, packet_time_ * kWindowPackets)),
      jitter_(environment.jitter),
      constants_(constants),
      budget_({.line = environment.line_rate,
               .first = environment.first_rate,
               .packet = environment.mtu + environment.overhead,
               .round_trip = round_trip,
               .jitter = environment.jitter,
               .base_memory = base_memory,
               .host_link = environment.host_link}) {}

bool LinkCapacity::on_arrival(Instant now, Bytes wire, bool covered, Duration excess,
                              uint32_t flow) {
  const bool over = now - started_ >= window_;
  if (over) close_window(now);
  if (!covered) foreign_ += wire;
  least_excess_ = std::min(least_excess_, excess);
  return budget_.on_bytes(now, wire, excess, flow) || over;
}

// A window without arrivals lasts until the next arrival, so its rate is lower.
void LinkCapacity::close_window(Instant now) {
  const double foreign = static_cast<double>(foreign_) * 8 / (now - started_).seconds();
  const bool seen = least_excess_ < Duration::max();
  // The usual delay: packets of flows and processes meet, and end hosts are late.
  const Duration usual = jitter_ + packet_time_ * budget_.usual_packets();
  queue_ = seen ? std::max(least_excess_ - usual, Duration()) : Duration();
  if (foreign > uncovered_) {
    uncovered_ += kWeight * (foreign - uncovered_);
  } else {
    uncovered_ -= kForget * (uncovered_ - foreign);
  }
  started_ = now;
  foreign_ = 0;
  least_excess_ = Duration::max();
}

// Against much uncovered traffic, which may keep the queue up, draining leaves flows with grants at
// least their half.
double LinkCapacity::available(size_t flows) const {
  const double eta = flows <= 1 ? 1.0 : constants_.shared;
  const double line = this->line();
  const double least = constants_.least_share * line;
  const double granted = std::max(eta * line - uncovered_, least);
  if (budget_.learnt()) return granted;
  const double drain = line * queue_.seconds() / (constants_.drain_round_trips * window_.seconds());
  const double drained = granted - std::min(drain, kMostDrain * granted);
  return uncovered_ < kManyUncovered * line ? drained : std::max(drained, least);
}

}  // namespace pacecar
