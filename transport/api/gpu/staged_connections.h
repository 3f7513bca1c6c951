// Connections for GPU memory that their NIC cannot reach: the GPU copies messages through a pinned
// ring while others are on the wire. Messages in other memory are not copied, but stay in order.
// A full ring is back-pressure: isend and irecv return nullptr. Copies are started, and finished
// ones posted, within isend, irecv and test of the same connection. A receive is done when its copy
// is done. Thread rule: as for other connections.
#pragma once

#include <memory>

#include "gdr/gpu_system.h"
#include "transport/api/pacecar.hpp"

namespace pacecar {

// The pinned memory of one connection: twice the bytes that NCCL has in flight on a connection,
// which are 4 slices of 1 MiB, or 8 of 512 KiB.
constexpr size_t kPinnedRingBytes = 8 << 20;

struct Staging {
  std::shared_ptr<Context> context;  // of the connection
  size_t nic = 0;
  std::shared_ptr<GpuSystem> gpus;
  // Makes the ring at once, if the connecting thread uses a GPU: a later allocation of pinned
  // memory may wait for running kernels, which may wait for the first message. If false, the first
  // message that needs the ring makes it.
  bool at_once = false;
};

// Errors: kSystem, and the errors of registering host memory.
Result<std::unique_ptr<SendConnection>> stage(std::unique_ptr<SendConnection> inner,
                                              const Staging& staging);
Result<std::unique_ptr<ReceiveConnection>> stage(std::unique_ptr<ReceiveConnection> inner,
                                                 const Staging& staging);

}  // namespace pacecar
