#include "tests/model/checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace pacecar::model {
namespace {

// A new grant is sent only when the rate changes by at least 1/64, a new demand when the usable
// rate changes by at least 1/32.
constexpr double kReceiverTolerance = 0.05;
constexpr double kSenderTolerance = 1.0 / 32;
constexpr double kLowShare = 0.25;   // of the fair share
constexpr double kLoneShare = 0.85;  // of the line, for a flow that shares with nobody
// A brief message may wait for those before it in the queue of its NIC; each takes less than this.
constexpr int64_t kTurnSteps = kStepsPerRoundTrip;
constexpr int64_t kLowSteps = 4 * kValiditySteps;
// A word is repeated after V at the latest, by a sweep every V/4, and takes half a round trip.
constexpr int64_t kRepeatSteps = kValiditySteps + kValiditySteps / 4 + kStepsPerRoundTrip;
constexpr int64_t kRestSteps = 8 * kValiditySteps;
constexpr double kRestShare = 0.7;  // of the line, while the remaining bytes drain
// From the last word to 1/256 of the line: V, eight halvings, and a sweep.
constexpr int64_t kSlowSteps = kValiditySteps + 9 * kStepsPerRoundTrip + kValiditySteps / 2;
// From the last word until loop 2 alone decides: 2 V, and the time in which the next packet at
// 1/256 of the line leaves and is acknowledged.
constexpr int64_t kAloneSteps = 2 * kValiditySteps + 2 * kValiditySteps;

const double kStepBytes = static_cast<double>(kLine.bytes_in(kStep));

double share_of(Rate rate) {
  return static_cast<double>(rate.bps()) / static_cast<double>(kLine.bps());
}

double usage(const FlowView& flow) {
  const Bytes allowed = std::min({flow.rate.bytes_in(kStep), flow.unsent, flow.room});
  return static_cast<double>(allowed) / kStepBytes;
}

}  // namespace

void Result::add(const Result& other) {
  steps += other.steps;
  words += other.words;
  faults += other.faults;
  longest_excess = std::max(longest_excess, other.longest_excess);
  largest_excess = std::max(largest_excess, other.largest_excess);
  largest_queue = std::max(largest_queue, other.largest_queue);
  longest_low = std::max(longest_low, other.longest_low);
  longest_rest = std::max(longest_rest, other.longest_rest);
  validity = std::max(validity, other.validity);
}

Checks::Checks(const Scenario& scenario)
    : scenario_(scenario),
      newest_grant_(size_t{scenario.senders} * scenario.receivers),
      sends_(newest_grant_.size()),
      before_(scenario.receivers),
      most_(scenario.receivers),
      excess_(scenario.receivers),
      low_(newest_grant_.size()),
      without_grant_(newest_grant_.size()),
      without_demand_(newest_grant_.size()) {}

void Checks::fail(int64_t step, std::string what) {
  if (!failed()) result_.failure = fmt::format("{}: step {}: {}", scenario_.name, step, what);
}

void Checks::on_fault(int64_t until) {
  ++result_.faults;
  faulty_ = true;
  quiet_since_ = std::max(quiet_since_, until);
}

double Checks::granted(uint32_t receiver) const {
  double sum = 0;
  for (uint32_t i = receiver; i < newest_grant_.size(); i += scenario_.receivers) {
    if (sends_[i]) sum += newest_grant_[i];
  }
  return sum;
}

void Checks::on_grant(int64_t step, uint32_t sender, uint32_t receiver, const Grant& grant) {
  result_.validity = std::max(result_.validity, grant.validity);
  if (grant.rate > kLine) fail(step, "a grant is above line rate");
  newest_grant_[size_t{sender} * scenario_.receivers + receiver] = share_of(grant.rate);
  most_[receiver] = std::max(most_[receiver], granted(receiver));
}

void Checks::on_grants(int64_t step) {
  if (step >= scenario_.silent_from) return;  // the grants of long silent senders go to others
  for (uint32_t i = 0; i < scenario_.receivers; ++i) {
    const double allowed = std::max({before_[i], granted(i), 1.0}) + kReceiverTolerance;
    if (most_[i] > allowed) {
      fail(step, fmt::format("a raise leaves before a cut: {:.2f} of the link", most_[i]));
    }
  }
}

void Checks::on_step(int64_t step, const std::vector<FlowView>& flows, Bytes left, bool all_begun) {
  result_.steps = step;
  for (const FlowView& flow : flows) {
    sends_[size_t{flow.sender} * scenario_.receivers + flow.receiver] = flow.rest > 0 && flow.known;
  }
  for (uint32_t i = 0; i < scenario_.receivers; ++i) before_[i] = most_[i] = granted(i);
  check_links(step, flows);
  check_silence(step, flows);
  if (!all_begun || step <= quiet_since_) {
    resting_since_ = -1;
    low_.assign(low_.size(), 0);
    without_grant_ = without_demand_ = low_;
    return;
  }
  check_progress(step, flows);
  check_repeats(step, flows);
  if (resting_since_ < 0) {
    resting_since_ = step;
    rest_ = left;
  }
  const auto slowed = [](const FlowView& flow) { return flow.unsent > 0 && flow.network; };
  if (std::any_of(flows.begin(), flows.end(), slowed)) ++resting_since_;
  const auto needed = static_cast<int64_t>(static_cast<double>(rest_) / kStepBytes / kRestShare);
  const int64_t rest = step - resting_since_ - needed;
  result_.longest_rest = std::max(result_.longest_rest, rest);
  if (rest > kRestSteps && left > 0) {
    fail(step, fmt::format("{} bytes have not arrived {} steps after the bound", left, rest));
  }
}

void Checks::check_links(int64_t step, const std::vector<FlowView>& flows) {
  std::vector<double> towards(scenario_.receivers);
  std::vector<double> from(scenario_.senders);
  for (const FlowView& flow : flows) {
    towards[flow.receiver] += usage(flow);
    from[flow.sender] += usage(flow);
  }
  for (uint32_t i = 0; i < towards.size(); ++i) {
    result_.largest_excess = std::max(result_.largest_excess, towards[i] - 1);
    excess_[i] = towards[i] > 1 + kReceiverTolerance ? excess_[i] + 1 : 0;
    // Without any word, congestion in the network alone limits rates, and this world has none.
    if (step >= scenario_.silent_from && !scenario_.data_too) excess_[i] = 0;
    result_.longest_excess = std::max(result_.longest_excess, excess_[i]);
    if (excess_[i] > (faulty_ ? scenario_.longest_excess : scenario_.longest_surprise)) {
      fail(step, fmt::format("{} steps of excess at receiver {}", excess_[i], i));
    }
  }
  for (uint32_t i = 0; i < from.size(); ++i) {
    if (from[i] > 1 + kSenderTolerance) {
      fail(step, fmt::format("sender {} uses {:.3f} of its link", i, from[i]));
    }
  }
}

void Checks::check_progress(int64_t step, const std::vector<FlowView>& flows) {
  std::vector<int64_t> towards(scenario_.receivers);
  std::vector<int64_t> from(scenario_.senders);
  for (const FlowView& flow : flows) {
    if (!flow.waiting) continue;
    ++towards[flow.receiver];
    ++from[flow.sender];
  }
  for (size_t i = 0; i < flows.size(); ++i) {
    const FlowView& flow = flows[i];
    const int64_t sharing = std::max(towards[flow.receiver], from[flow.sender]);
    const double least = sharing == 1 ? kLoneShare : kLowShare / static_cast<double>(sharing);
    const bool low = flow.unsent > 0 && (flow.held || share_of(flow.rate) < least);
    if (low && flow.network) continue;
    low_[i] = low ? low_[i] + 1 : 0;
    result_.longest_low = std::max(result_.longest_low, low_[i]);
    if (low_[i] > kLowSteps + kTurnSteps * (sharing - 1)) {
      fail(step,
           fmt::format("flow {}->{} is slow for {} steps", flow.sender, flow.receiver, low_[i]));
    }
  }
}

void Checks::check_repeats(int64_t step, const std::vector<FlowView>& flows) {
  for (size_t i = 0; i < flows.size(); ++i) {
    const FlowView& flow = flows[i];
    without_grant_[i] =
        flow.rest > 0 && flow.known && !flow.grant_arrived ? without_grant_[i] + 1 : 0;
    without_demand_[i] =
        flow.rest > 0 && flow.announced && !flow.demand_arrived ? without_demand_[i] + 1 : 0;
    if (std::max(without_grant_[i], without_demand_[i]) > kRepeatSteps) {
      fail(step, fmt::format("the newest {} of flow {}->{} has not arrived",
                             without_grant_[i] > kRepeatSteps ? "grant" : "demand", flow.sender,
                             flow.receiver));
    }
  }
}

void Checks::check_silence(int64_t step, const std::vector<FlowView>& flows) {
  if (step < scenario_.silent_from || step >= scenario_.silent_until) return;
  for (const FlowView& flow : flows) {
    const int64_t alone = step - std::max(scenario_.silent_from, flow.busy_since);
    if (flow.unsent == 0) continue;
    if (scenario_.data_too && alone > kSlowSteps && flow.rate.bps() > kLine.bps() / 256) {
      fail(step, fmt::format("flow {}->{} gets no word or acknowledgement and sends at {:.3f} Gb/s",
                             flow.sender, flow.receiver, flow.rate.gbps()));
    }
    if (!scenario_.data_too && alone > kAloneSteps && flow.granted) {
      fail(step, fmt::format("flow {}->{} obeys an expired grant", flow.sender, flow.receiver));
    }
  }
}

}  // namespace pacecar::model
