#include "bench/sim/fault_player.h"

namespace pacecar {

FaultPlayer::FaultPlayer(EventLoop& loop, Fabric& fabric, std::span<const FaultEvent> faults,
                         TraceFile* trace)
    : loop_(loop),
      fabric_(fabric),
      faults_(faults),
      trace_(trace),
      timer_(loop.add_timer(*this, 0)) {}

void FaultPlayer::begin() {
  begin_ = loop_.now();
  // The fabric wants to know of all frozen hosts beforehand.
  for (const FaultEvent& fault : faults_) {
    if (fault.kind != FaultKind::kHostFrozen) continue;
    const Instant from = begin_ + fault.at;
    faulty_.stalls.push_back({{from, from + fault.length}, fault.target});
  }
  if (!faulty_.stalls.empty()) fabric_.set_faults(faulty_);
  if (!faults_.empty()) loop_.arm(timer_, begin_ + faults_.front().at);
}

void FaultPlayer::on_event(Instant now, uint32_t) {
  while (next_ < faults_.size() && begin_ + faults_[next_].at <= now) {
    apply(faults_[next_]);
    if (trace_ != nullptr) trace_->write(now - begin_, "fault", "number", next_);
    ++next_;
  }
  if (next_ < faults_.size()) loop_.arm(timer_, begin_ + faults_[next_].at);
}

void FaultPlayer::apply(const FaultEvent& fault) {
  switch (fault.kind) {
    case FaultKind::kCableDown:
      return fabric_.set_cable_up(fault.target, false);
    case FaultKind::kCableUp:
      return fabric_.set_cable_up(fault.target, true);
    case FaultKind::kCableRate:
      return fabric_.set_cable_rate(fault.target, fault.rate);
    case FaultKind::kCableLoss:
      return fabric_.set_cable_loss(fault.target, fault.probability);
    case FaultKind::kHostFrozen:
      return;  // since begin()
    case FaultKind::kWordLoss:
      faulty_.word_losses.push_back({fault.probability, fault.everywhere
                                                            ? std::nullopt
                                                            : std::optional<size_t>(fault.target)});
      return fabric_.set_faults(faulty_);
    case FaultKind::kPacketLoss:
      faulty_.loss = fault.probability;
      return fabric_.set_faults(faulty_);
  }
}

}  // namespace pacecar
