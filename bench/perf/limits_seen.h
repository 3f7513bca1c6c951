// Samples of what limits a flow: how often each reason was found, and the last sample. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cc/controller.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/result.h"

namespace pacecar::perf {

class LimitsSeen {
 public:
  void add(const FlowView& flow);
  // Adds later samples.
  void add(const LimitsSeen& later);

  bool any() const { return samples_ > 0; }
  const FlowView& last() const { return last_; }
  // The share of samples with each reason: {"grant": 0.93, "network": 0.07}.
  nlohmann::json shares() const;
  // "grant 93% of the time, network 7%": the most frequent first; those below 0.5% are left out.
  std::string words() const;

 private:
  double share(size_t limit) const {
    return static_cast<double>(found_[limit]) / static_cast<double>(samples_);
  }

  std::array<uint64_t, kEveryLimit.size()> found_{};  // samples by reason
  uint64_t samples_ = 0;
  FlowView last_;
};

nlohmann::json to_json(const FlowView& flow);
// Errors: kPeer when a member is missing or impossible.
Result<FlowView> flow_view_from_json(const nlohmann::json& object);

}  // namespace pacecar::perf
