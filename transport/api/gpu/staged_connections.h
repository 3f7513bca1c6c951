// Connections that take GPU memory which their NIC cannot reach: its messages go through a pinned
// ring, copied by the GPU while others are on the wire. Memory that the NIC knows goes its usual
// way, in order with the rest.
//
// A full ring is back-pressure: isend and irecv give nullptr. Copies are started and handed on
// within isend, irecv and test of the same connection; a request is done when its copy is.
//
// Thread rule: as of the connections.
#pragma once

#include <memory>

#include "gdr/gpu_system.h"
#include "transport/api/pacecar.hpp"

namespace pacecar {

struct Staging {
  std::shared_ptr<Context> context;  // that the connection is of
  size_t nic = 0;
  std::shared_ptr<GpuSystem> gpus;
  // The ring is there from the start where the thread that connects works with a GPU: allocating
  // pinned memory may wait for kernels that run, which may wait for the first message. Else the
  // first message that needs it makes it.
  bool at_once = false;
};

// Errors: those of PinnedRing::create.
Result<std::unique_ptr<SendConnection>> stage(std::unique_ptr<SendConnection> inner,
                                              const Staging& staging);
Result<std::unique_ptr<ReceiveConnection>> stage(std::unique_ptr<ReceiveConnection> inner,
                                                 const Staging& staging);

}  // namespace pacecar
