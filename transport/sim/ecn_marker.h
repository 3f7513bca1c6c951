// Whether a packet gets the congestion mark, from the length of its queue. Thread rule: one thread.
#pragma once

#include "transport/base/prng.h"
#include "transport/base/units.h"
#include "transport/sim/fabric_config.h"

namespace pacecar {

class EcnMarker {
 public:
  explicit EcnMarker(const EcnConfig& config) : config_(config) {}

  bool on_enqueue() const { return is_on(EcnConfig::When::kEnqueue); }
  bool on_dequeue() const { return is_on(EcnConfig::When::kDequeue); }

  bool marks(Bytes queue_bytes, Prng& random) const {
    if (queue_bytes < config_.low) return false;
    if (config_.kind == EcnConfig::Kind::kStep || queue_bytes >= config_.high) return true;
    const auto above = static_cast<double>(queue_bytes - config_.low);
    const auto range = static_cast<double>(config_.high - config_.low);
    return random.chance(config_.max_probability * above / range);
  }

 private:
  bool is_on(EcnConfig::When when) const {
    return config_.kind != EcnConfig::Kind::kOff && config_.when == when;
  }

  EcnConfig config_;
};

}  // namespace pacecar
