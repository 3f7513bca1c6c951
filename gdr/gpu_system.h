// The driver, its GPUs, how NICs reach the memory of each, and its copy engine. Any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gdr/staging.h"
#include "transport/base/params.h"

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
  // Errors: as for CudaDriver::load and list_gpus.
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

// How a NIC transfers GPU memory.
enum class GpuWay : uint8_t {
  kHost,        // not at all: the application copies to and from host memory
  kStaged,      // we copy, through pinned host memory
  kPeerMemory,  // the NIC reaches it, registered by its address
  kDmaBuf,      // the NIC reaches it, registered as a dma-buf
};

constexpr bool is_direct(GpuWay way) {
  return way == GpuWay::kPeerMemory || way == GpuWay::kDmaBuf;
}

struct NicReach {
  bool software = false;  // this host's processors make its packets
  bool dma_buf = false;
  bool peer_memory = false;
};

struct GpuChoice {
  GpuWay way = GpuWay::kHost;
  std::string why;
  bool refused = false;  // the requested way is impossible
};

// Whether the choice depends on the GPUs, so that the driver must be loaded.
bool depends_on_gpus(GpuSetting setting, const NicReach& nic);

// `gpus` of the driver, or why there are none; unused unless depends_on_gpus.
GpuChoice choose_gpu_way(GpuSetting setting, const NicReach& nic,
                         const Result<std::span<const Gpu>>& gpus);

// "GPU memory through host buffers: a software NIC cannot reach the GPU", for people.
std::string describe(const GpuChoice& choice);

}  // namespace pacecar
