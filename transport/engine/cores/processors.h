// The processors near a NIC that this process may use. Thread rule: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/units.h"

struct hwloc_bitmap_s;
struct hwloc_topology;

namespace pacecar {

class Processors {
 public:
  // The processors of the network interface's NUMA node. If the process may use none there, or the
  // node is unknown: all processors that the process may use.
  explicit Processors(const std::string& interface);

  uint32_t count() const;
  // Keeps the calling thread on them. The kernel chooses among them, as it knows their load.
  void bind_this_thread() const;

 private:
  std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)> topology_;
  std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_s*)> usable_;  // empty: not known
};

// Engines of a NIC by PACECAR_ENGINES=auto: one if a core keeps up with the link (rate 0: unknown),
// or with few processors; otherwise a number that leaves most processors to the application.
uint32_t engines_for(uint32_t processors, Rate link);

}  // namespace pacecar
