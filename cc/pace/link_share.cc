#include "cc/pace/link_share.h"

#include <cmath>
#include <utility>

namespace pacecar {

LinkShare::LinkShare(const FlowEnvironment& environment, uint32_t max_flows, double tolerance)
    : nominal_(environment.line_rate.real_bps()),
      host_link_(environment.host_link),
      tolerance_(tolerance),
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
  const auto limit = [](const Member& m) { return m.limit.real_bps(); };
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
  line_ = std::min(host_link_->part().real_bps(), nominal_);
  reach_ = std::clamp(host_link_->reach().real_bps(), line_, nominal_);
  look(kInactive);
}

Instant LinkShare::next_deadline() const {
  return host_link_ == nullptr ? next_leaves_ : std::min(next_leaves_, host_link_->next_deadline());
}

void LinkShare::look(uint32_t causer) {
  level_ = fill_.level(line_);
  reach_level_ = reach_ == line_ ? level_ : fill_.level(reach_);
  if (!queue_.empty()) divide_queue(causer);
  spare_ = reach_level_ == WaterFill::kNoLevel ? reach_ - fill_.limits() : 0;
  const double shown = reach_level_ == WaterFill::kNoLevel ? reach_ + spare_ : reach_level_;
  const double given = level_ == WaterFill::kNoLevel ? line_ : level_;
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
  if (level_ == WaterFill::kNoLevel) return line_;
  return members_[flow].queued ? members_[flow].served : level_ * members_[flow].weight;
}

double LinkShare::usable(uint32_t flow) const {
  const Member& m = members_[flow];
  if (reach_level_ != WaterFill::kNoLevel) return reach_level_ * m.weight;
  return std::min(m.limit.real_bps() + spare_, reach_);
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
