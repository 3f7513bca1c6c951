#include "transport/engine/cores/processors.h"

#include <hwloc.h>

#include <algorithm>

namespace pacecar {
namespace {

// The rate that one core achieves on any machine, with full packets and tags.
constexpr Rate kOneCore = Rate::from_gbps(25);
// The others are for the application and for other ranks on this host: with four ranks on sixteen
// processors four engines each were slower than two (bench/log/2026-11-26-nccl-h200.md).
constexpr uint32_t kProcessorsPerEngine = 8;
constexpr uint32_t kMostEngines = 4;

// The processors of the network interface's NUMA node; null: unknown.
hwloc_const_bitmap_t processors_near(hwloc_topology_t topology, const std::string& interface) {
  hwloc_obj_t device = nullptr;
  do {
    device = hwloc_get_next_osdev(topology, device);
  } while (device != nullptr && interface != device->name);
  const hwloc_obj_t near =
      device == nullptr ? nullptr : hwloc_get_non_io_ancestor_obj(topology, device);
  return near == nullptr ? nullptr : near->cpuset;
}

}  // namespace

Processors::Processors(const std::string& interface)
    : topology_(nullptr, hwloc_topology_destroy), usable_(hwloc_bitmap_alloc(), hwloc_bitmap_free) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return;
  topology_.reset(topology);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) != 0) return;
  if (hwloc_get_cpubind(topology, usable_.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_copy(usable_.get(), hwloc_topology_get_allowed_cpuset(topology));
  }
  const hwloc_const_bitmap_t near = processors_near(topology, interface);
  if (near == nullptr || !hwloc_bitmap_intersects(usable_.get(), near)) return;
  hwloc_bitmap_and(usable_.get(), usable_.get(), near);
}

uint32_t Processors::count() const {
  return static_cast<uint32_t>(std::max(hwloc_bitmap_weight(usable_.get()), 0));
}

// If binding fails, the thread runs anywhere.
void Processors::bind_this_thread() const {
  if (hwloc_bitmap_iszero(usable_.get())) return;
  hwloc_set_cpubind(topology_.get(), usable_.get(), HWLOC_CPUBIND_THREAD);
}

uint32_t engines_for(uint32_t processors, Rate link) {
  if (link != Rate() && link <= kOneCore) return 1;
  return std::clamp(processors / kProcessorsPerEngine, uint32_t{1}, kMostEngines);
}

}  // namespace pacecar
