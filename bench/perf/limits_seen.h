// Samples of what limited a flow: how often each reason was found, and the last sample. Pure; a
// plain value.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/api/pacecar.hpp"

namespace pacecar::perf {

class LimitsSeen {
 public:
  void add(const FlowView& flow);
  // Adds later samples.
  void add(const LimitsSeen& later);

  bool any() const { return looks_ > 0; }
  const FlowView& last() const { return last_; }
  // The share of samples with each reason: {"grant": 0.93, "network": 0.07}.
  nlohmann::json shares() const;
  // "grant 93% of the time, network 7%": the most frequent first; those below 0.5% are left out.
  std::string words() const;

 private:
  static constexpr size_t kReasons = 8;  // more than FlowView knows
  struct Reason {
    std::string_view name;
    uint64_t looks = 0;
  };
  void add(std::string_view reason, uint64_t looks);

  std::array<Reason, kReasons> reasons_;  // those found first, without gaps
  uint64_t looks_ = 0;
  FlowView last_;
};

nlohmann::json to_json(const FlowView& flow);
// Errors: kPeer when a member is missing or impossible.
Result<FlowView> flow_view_from_json(const nlohmann::json& object);

}  // namespace pacecar::perf
