#include "transport/sim/host_model.h"

#include <algorithm>

namespace pacecar {

Duration Quantiles::at(double percent) const {
  const auto above = std::ranges::upper_bound(percents_, percent);
  if (above == percents_.end()) return values_.back();
  const auto next = static_cast<size_t>(above - percents_.begin());
  if (next == 0) return values_.front();
  const double part = (percent - percents_[next - 1]) / (percents_[next] - percents_[next - 1]);
  return values_[next - 1] + (values_[next] - values_[next - 1]).scaled(part);
}

Instant HostModel::worked(Instant now, size_t packets, size_t messages) {
  const Duration work = profile_.turn + profile_.packet * static_cast<int64_t>(packets) +
                        profile_.message * static_cast<int64_t>(messages);
  free_ = now + std::max(work, Duration::from_ns(1));
  for (until_pause_ = until_pause_ - work; until_pause_ < Duration();) {
    free_ = free_ + profile_.pause.draw(random_);
    until_pause_ = until_pause_ + next_pause();
  }
  return free_;
}

}  // namespace pacecar
