// Whether NICs can reach GPU memory, and which GPUs are far from them.

#include <algorithm>
#include <set>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

// Exporting GPU memory as dma-buf to RDMA: with NVIDIA's open kernel modules.
constexpr Version kDmabufKernel = {5, 12};

void check_direct(const Software& software, Findings& findings) {
  const bool open = software.nvidia_driver.find("Open Kernel Module") != std::string::npos;
  if (software.nvidia_driver.empty()) {
    findings.add("gpu.driver_missing", "driver",
                 "NVIDIA GPUs are there, and their driver is not loaded");
  } else if (open && version_of(software.kernel) >= kDmabufKernel) {
    findings.add("gpu.direct_dmabuf", "GPUDirect", "dma-buf: {}", software.nvidia_driver);
  } else if (software.has_module("nvidia_peermem")) {
    findings.add("gpu.direct_peermem", "GPUDirect", "the module nvidia_peermem is loaded");
  } else {
    findings.add("gpu.direct_off", "GPUDirect",
                 "nvidia_peermem is not loaded, and dma-buf needs Linux 5.12 and the open kernel "
                 "modules: data is copied through the host");
  }
}

void check_gpu_near(const Facts& facts, Findings& findings) {
  std::set<uint64_t> nodes;
  for (const RdmaDevice& device : facts.rdma) {
    const PciDevice* pci = facts.pci_device(device.pci_address);
    if (pci != nullptr && pci->numa_node) nodes.insert(*pci->numa_node);
  }
  if (nodes.empty()) return;
  for (const PciDevice& device : facts.pci) {
    if (device.kind != PciKind::kGpu || !device.numa_node || nodes.contains(*device.numa_node)) {
      continue;
    }
    findings.add("gpu.far", device.address,
                 "on NUMA node {}, where no RDMA device is: its data crosses the processors' link",
                 *device.numa_node);
  }
}

}  // namespace

void check_gpu(const Facts& facts, Findings& findings) {
  if (std::ranges::find(facts.pci, PciKind::kGpu, &PciDevice::kind) == facts.pci.end()) {
    findings.add("gpu.none", "GPUs", "none of NVIDIA");
    return;
  }
  check_direct(facts.software, findings);
  check_gpu_near(facts, findings);
}

}  // namespace pacecar::preflight
