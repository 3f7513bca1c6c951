#include "cc/pace/link_share.h"

#include <cmath>
#include <utility>

#include "cc/rate_law.h"

namespace pacecar {

namespace {

// The receiver may react, too, and more so where its grants limit us. Where receivers time
// arrivals, queues are left to them: two laws on one queue would yield to each other in turns.
constexpr int64_t kPatience = 2;
constexpr int64_t kPatienceGranted = 8;
// Round trips are measured by one clock: no drift.
constexpr Duration kBaseMemory = Duration::from_s(1);

}  // namespace

LinkShare::LinkShare(const FlowEnvironment& environment, uint32_t max_flows, double tolerance)
    : nominal_(static_cast<double>(environment.line_rate.bps())),
      receivers_time_arrivals_(environment.receivers_time_arrivals),
      host_link_(environment.host_link),
      reach_(nominal_),
      tolerance_(tolerance),
      budget_({.line = environment.line_rate,
               .first = environment.first_rate,
               .packet = environment.mtu + environment.overhead,
               .round_trip = base_round_trip(environment),
               .jitter = environment.jitter,
               .base_memory = kBaseMemory,
               .yields = !environment.receivers_time_arrivals,
               .host_link = environment.host_link}),
      members_(max_flows),
      changed_(max_flows) {
  active_.reserve(max_flows);
  queue_.reserve(max_flows);
}

void LinkShare::set(uint32_t flow, Rate limit, uint32_t weight) {
  Member& m = members_[flow];
  if (m.limit == limit && m.weight == weight) return;
  if (m.limit > Rate()) fill_.remove(m.limit, m.weight);
  m.limit = limit;
  m.weight = weight;
  if (limit > Rate()) fill_.add(limit, weight);
  const bool active = m.position != kInactive;
  if (limit > Rate() && !active) {
    m.position = static_cast<uint32_t>(active_.size());
    active_.push_back(flow);
  } else if (limit == Rate() && active) {
    members_[active_.back()].position = m.position;
    active_[m.position] = active_.back();
    active_.pop_back();
    m.position = kInactive;
    changed_.remove(flow);
  }
  look(flow);
}

void LinkShare::queue(uint32_t flow) {
  members_[flow].queued = true;
  members_[flow].leaves = Instant::never();
  queue_.push_back(flow);
  divide_queue(flow);
}

void LinkShare::leave_queue(uint32_t flow) {
  members_[flow].queued = false;
  queue_.erase(std::ranges::find(queue_, flow));
  divide_queue(flow);
}

void LinkShare::divide_queue(uint32_t causer) {
  const auto limit = [](const Member& m) { return static_cast<double>(m.limit.bps()); };
  double left = 0;
  for (const uint32_t flow : queue_) {
    const Member& m = members_[flow];
    left += std::min(level_ * m.weight, limit(m));
  }
  for (const uint32_t flow : queue_) {
    Member& m = members_[flow];
    const double before = std::exchange(m.served, left);
    left -= std::min(left, limit(m));
    const bool other = std::abs(m.served - before) > tolerance_ * before;
    if (other && flow != causer && m.position != kInactive) changed_.add(flow);
  }
}

void LinkShare::visit_leaving(Instant now) {
  next_leaves_ = Instant::never();
  for (const uint32_t flow : queue_) {
    const Instant leaves = members_[flow].leaves;
    leaves <= now ? changed_.add(flow) : set_next_leaves(leaves);
  }
}

void LinkShare::poll(Instant now) {
  if (now >= next_leaves_) visit_leaving(now);
  if (host_link_ == nullptr) return;
  const double limits = std::min(fill_.limits(), nominal_);
  const LinkClaim claim{.demand = Rate::from_bps(static_cast<uint64_t>(limits)),
                        .weight = static_cast<uint32_t>(fill_.weights())};
  if (claim == claim_ && !host_link_->due(now)) return;
  claim_ = claim;
  host_link_->claim(now, claim);
  const double part = std::min(static_cast<double>(host_link_->part().bps()), nominal_);
  const double reach = std::clamp(static_cast<double>(host_link_->reach().bps()), part, nominal_);
  weight_share_ = host_link_->share_of_weights();
  reach_ = reach;
  budget_.set_part(part);
  look(kInactive);
}

Instant LinkShare::next_deadline() const {
  return host_link_ == nullptr ? next_leaves_ : std::min(next_leaves_, host_link_->next_deadline());
}

void LinkShare::on_acked(Instant now, Bytes wire, Duration excess, uint32_t flow) {
  const bool granted = level_ == WaterFill::kNoLevel;
  budget_.set_patience(granted ? kPatienceGranted : kPatience);
  if (budget_.on_bytes(now, wire, excess, flow)) look(kInactive);
}

void LinkShare::look(uint32_t causer) {
  if (!active_.empty()) {
    const double mean = static_cast<double>(fill_.weights()) / static_cast<double>(active_.size());
    budget_.set_weight(mean, weight_share_);
  }
  const double line = this->line();
  const double reach = this->reach();
  level_ = fill_.level(line);
  reach_level_ = reach == line ? level_ : fill_.level(reach);
  if (!queue_.empty()) divide_queue(causer);
  spare_ = reach_level_ == WaterFill::kNoLevel ? reach - fill_.limits() : 0;
  const double shown = reach_level_ == WaterFill::kNoLevel ? reach + spare_ : reach_level_;
  const double given = level_ == WaterFill::kNoLevel ? line : level_;
  const auto other = [&](double rate, double before) {
    return std::abs(rate - before) > tolerance_ * before;
  };
  if (!other(shown, shown_) && !other(given, shown_given_)) return;
  shown_ = shown;
  shown_given_ = given;
  for (const uint32_t flow : active_) {
    if (flow != causer) changed_.add(flow);
  }
}

double LinkShare::share(uint32_t flow) const {
  if (level_ == WaterFill::kNoLevel) return line();
  return members_[flow].queued ? members_[flow].served : level_ * members_[flow].weight;
}

double LinkShare::usable(uint32_t flow) const {
  const Member& m = members_[flow];
  if (reach_level_ != WaterFill::kNoLevel) return reach_level_ * m.weight;
  return std::min(static_cast<double>(m.limit.bps()) + spare_, std::max(line(), reach_));
}

void LinkShare::touch_all() {
  for (const uint32_t flow : active_) changed_.add(flow);
}

size_t LinkShare::poll_changed(std::span<uint32_t> flows) {
  size_t count = 0;
  while (count < flows.size() && !changed_.empty()) flows[count++] = changed_.take();
  return count;
}

}  // namespace pacecar
