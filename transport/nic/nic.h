// Nic: an RDMA NIC as a program sees it. Implemented by the software RDMA NIC (softnic), over
// libibverbs (verbs) and over libfabric (ofi); used by the message layer, which is the same for all
// NICs. Thread rule: see its two halves.
#pragma once

#include "transport/nic/nic_memory.h"
#include "transport/nic/nic_queue_pairs.h"

namespace pacecar {

class Nic : public NicQueuePairs, public NicMemory {
 public:
  virtual ~Nic() = default;
};

}  // namespace pacecar
