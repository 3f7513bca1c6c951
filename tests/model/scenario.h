// The parts of a world: hosts, and messages between them. Sizes are in bandwidth-delay products
// (BDP), times in steps.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cc/controller.h"
#include "tests/model/chooser.h"

namespace pacecar::model {

inline constexpr Rate kLine = Rate::from_gbps(100);
inline constexpr Duration kRoundTrip = Duration::from_us(8);
inline constexpr int64_t kStepsPerRoundTrip = 4;
inline constexpr Duration kStep = kRoundTrip / kStepsPerRoundTrip;
inline constexpr int64_t kWordSteps = kStepsPerRoundTrip / 2;
// The validity of 50 us, which a grant word rounds to 48 us.
inline constexpr int64_t kValiditySteps = 24;
inline constexpr Bytes kBdp = kLine.bytes_in(kRoundTrip);

struct Message {
  uint32_t sender = 0;
  uint32_t receiver = 0;
  Bytes bytes = 0;
  int64_t posted = 0;  // step in which the receiver posts the buffer
  int64_t ready = 0;   // step in which the sender has it ready; it also needs the CTS
};

struct Scenario {
  std::string name;
  uint32_t senders = 1;
  uint32_t receivers = 1;
  std::vector<Message> messages;  // messages of one flow in the order of both times
  int64_t faults_until = 60;      // words sent before this step may meet a fault
  // How long a receiving link may be overloaded. Without faults: until each sender that joined
  // unexpectedly is known. With a few faults: V. With many: a grant counts from its arrival, so the
  // latest may prolong it by its delay.
  int64_t longest_surprise = 2 * kStepsPerRoundTrip;
  int64_t longest_excess = kValiditySteps;
  // All words sent in these steps are lost, and, if `data_too`, acknowledgements are held back.
  int64_t silent_from = std::numeric_limits<int64_t>::max();
  int64_t silent_until = std::numeric_limits<int64_t>::max();
  bool data_too = false;
  // From the step `dies` on, the sender `dead` does nothing.
  int64_t dies = std::numeric_limits<int64_t>::max();
  uint32_t dead = 0;
};

// Small worlds, each of another kind.
std::vector<Scenario> fixed_scenarios();
// One of many worlds with the same hosts; `chooser` picks sizes and times of the messages.
Scenario shaped_scenario(uint32_t senders, uint32_t receivers, Chooser& chooser);
// Up to four hosts and a dozen messages.
Scenario wild_scenario(Chooser& chooser);

}  // namespace pacecar::model
