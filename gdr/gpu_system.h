// The driver, its GPUs, how NICs may reach the memory of each, and its copy engine.
//
// Thread rule: any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gdr/staging.h"

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

class GpuSystem {
 public:
  // Errors: those of CudaDriver::load and list_gpus.
  static Result<std::shared_ptr<GpuSystem>> open(const std::string& library = CudaDriver::kLibrary);

  const CudaDriver& driver() const { return *driver_; }
  const std::vector<Gpu>& gpus() const { return gpus_; }
  // The GPU that the calling thread works with; nullopt when it has not chosen one.
  std::optional<int> current_device() const;
  // The one engine of a GPU, made at the first call. Errors: kSystem.
  Result<std::shared_ptr<const CopyEngine>> engine(int device);

 private:
  GpuSystem(std::shared_ptr<const CudaDriver> driver, std::vector<Gpu> gpus)
      : driver_(std::move(driver)), gpus_(std::move(gpus)) {}

  const std::shared_ptr<const CudaDriver> driver_;
  const std::vector<Gpu> gpus_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<const CopyEngine>> engines_;  // by ordinal
};

}  // namespace pacecar
