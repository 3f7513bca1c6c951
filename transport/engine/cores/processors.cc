#include "transport/engine/cores/processors.h"

#include <hwloc.h>

#include <algorithm>

namespace pacecar {
namespace {

// The rate that one core surely achieves, with full packets and tags.
constexpr Rate kOneCore = Rate::from_gbps(25);
// One engine per so many processors: the others are for the application, other programs and the
// threads that call us.
constexpr uint32_t kProcessorsPerEngine = 4;
constexpr uint32_t kMostEngines = 4;

}  // namespace

// Null if the topology cannot be read: then no thread is bound.
struct Processors::Topology {
  hwloc_topology_t topology = nullptr;
  hwloc_bitmap_t usable = hwloc_bitmap_alloc();

  Topology() {
    if (hwloc_topology_init(&topology) != 0) {
      topology = nullptr;
      return;
    }
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_OS_DEVICE,
                                   HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(topology) == 0) return;
    hwloc_topology_destroy(topology);
    topology = nullptr;
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology() {
    hwloc_bitmap_free(usable);
    if (topology != nullptr) hwloc_topology_destroy(topology);
  }

  void use_those_near(const std::string& interface) {
    if (hwloc_get_cpubind(topology, usable, HWLOC_CPUBIND_PROCESS) != 0) {
      hwloc_bitmap_copy(usable, hwloc_topology_get_allowed_cpuset(topology));
    }
    hwloc_obj_t device = nullptr;
    do {
      device = hwloc_get_next_osdev(topology, device);
    } while (device != nullptr && interface != device->name);
    if (device == nullptr) return;
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
    if (near == nullptr || !hwloc_bitmap_intersects(usable, near->cpuset)) return;
    hwloc_bitmap_and(usable, usable, near->cpuset);
  }
};

Processors::Processors(const std::string& interface) : topology_(std::make_unique<Topology>()) {
  if (topology_->topology != nullptr) topology_->use_those_near(interface);
}

Processors::~Processors() = default;

uint32_t Processors::count() const {
  return static_cast<uint32_t>(std::max(hwloc_bitmap_weight(topology_->usable), 0));
}

// If refused, the thread runs anywhere.
void Processors::bind_this_thread() const {
  if (topology_->topology == nullptr || hwloc_bitmap_iszero(topology_->usable)) return;
  hwloc_set_cpubind(topology_->topology, topology_->usable, HWLOC_CPUBIND_THREAD);
}

uint32_t engines_for(uint32_t processors, Rate link) {
  if (link != Rate() && link <= kOneCore) return 1;
  return std::clamp(processors / kProcessorsPerEngine, uint32_t{1}, kMostEngines);
}

}  // namespace pacecar
