// The faults of a simulated network. A default SimFaults is a network without faults, which a test
// sets for its last phase to see that everything completes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

// Half open: [from, until).
struct SimWindow {
  Instant from;
  Instant until = Instant::never();

  bool contains(Instant time) const { return from <= time && time < until; }
};

// Nothing passes between the island and the other ports.
struct SimPartition {
  SimWindow window;
  std::vector<size_t> island;  // ports, which are numbered as processes are
};

// The port neither sends nor receives, as if its process were stopped; its inbox fills meanwhile.
struct SimStall {
  SimWindow window;
  size_t port = 0;
};

// Control packets that carry payload are lost: the small RDMA writes by which hosts coordinate, not
// acknowledgements.
struct SimWordLoss {
  double probability = 0;
  std::optional<size_t> port;  // that sends them; none: any
};

struct SimFaults {
  // Probabilities per packet, independent of each other.
  double loss = 0;
  double duplication = 0;
  double reordering = 0;  // the packet is late by up to reorder_delay, others overtake it
  double corruption = 0;  // one bit flips
  Duration reorder_delay = Duration::from_us(50);
  std::vector<SimPartition> partitions;
  std::vector<SimStall> stalls;
  std::vector<SimWordLoss> word_losses;
};

}  // namespace pacecar
