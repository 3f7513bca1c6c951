#include "cc/pace/link_share.h"

#include <algorithm>
#include <cmath>

namespace pacecar {

LinkShare::LinkShare(Rate line_rate, uint32_t max_flows, double tolerance)
    : line_(static_cast<double>(line_rate.bps())),
      tolerance_(tolerance),
      members_(max_flows),
      changed_(max_flows) {
  active_.reserve(max_flows);
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
    ++turns_;
  } else if (limit == Rate() && active) {
    members_[active_.back()].position = m.position;
    active_[m.position] = active_.back();
    active_.pop_back();
    m.position = kInactive;
    changed_.remove(flow);
  }
  look(flow);
}

void LinkShare::look(uint32_t causer) {
  level_ = fill_.level(line_);
  spare_ = level_ == WaterFill::kNoLevel ? line_ - fill_.limits() : 0;
  const double shown = level_ == WaterFill::kNoLevel ? line_ + spare_ : level_;
  if (std::abs(shown - told_) <= tolerance_ * told_) return;
  told_ = shown;
  for (const uint32_t flow : active_) {
    if (flow != causer) changed_.add(flow);
  }
}

double LinkShare::share(uint32_t flow) const {
  if (level_ == WaterFill::kNoLevel) return line_;
  return level_ * members_[flow].weight;
}

double LinkShare::usable(uint32_t flow) const {
  const Member& m = members_[flow];
  if (level_ != WaterFill::kNoLevel) return level_ * m.weight;
  return std::min(static_cast<double>(m.limit.bps()) + spare_, line_);
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
