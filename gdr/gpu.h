// The GPUs of the driver, and how NICs may reach the memory of each.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "gdr/cuda_driver.h"
#include "transport/base/result.h"

namespace pacecar {

struct Gpu {
  int device = 0;              // its ordinal
  std::string pci_bus_id;      // 0000:3b:00.0, as sysfs names it
  bool dma_buf = false;        // its memory can be exported as dma-buf
  bool peer_memory = false;    // a kernel module may give its memory to NICs
  bool flush_call = false;     // cuFlushGPUDirectRDMAWrites works for it
  bool orders_writes = false;  // its kernels see a NIC's writes without a flush
};

// In the order of their ordinals. Errors: kSystem.
Result<std::vector<Gpu>> list_gpus(const CudaDriver& driver);

}  // namespace pacecar
