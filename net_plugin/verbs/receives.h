// The receive requests of a queue pair, or of a shared receive queue: id and scatter list of each.
//
// Thread rule: call with the NIC's mutex held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "net_plugin/verbs/staging.h"
#include "transport/nic/nic.h"

namespace pacecar::ibverbs {

class ProcessNic;
struct Region;

// The memory of a piece; null if it is in no region of the domain, or `write` is not allowed.
uint8_t* locate(ProcessNic& nic, const ibv_pd* pd, const ibv_sge& piece, bool write);
Bytes total_of(const ibv_sge* pieces, int count);

class Receives {
 public:
  explicit Receives(uint32_t most) : slots_(most) {
    for (uint32_t i = most; i > 0; --i) free_.push_back(i - 1);
  }

  size_t posted() const { return slots_.size() - free_.size(); }
  size_t capacity() const { return slots_.size(); }
  // Fills the request for the NIC. 0, or an errno.
  int prepare(ProcessNic& nic, const ibv_pd* pd, const ibv_recv_wr& wr, ReceiveRequest* request);
  // Copies the received bytes to the pieces of a completed request. Returns its wr_id.
  uint64_t finish(ProcessNic& nic, uint64_t slot, Bytes bytes);
  // Drops all pending requests, and returns their wr_ids in the order of posting.
  std::vector<uint64_t> drop_all(ProcessNic& nic);

 private:
  struct Slot {
    uint64_t wr_id = 0;
    uint64_t order = 0;
    bool posted = false;
    Staging staging;
    std::vector<std::pair<uint8_t*, uint32_t>> pieces;  // final places of the data in `staging`
  };
  void release(ProcessNic& nic, uint32_t slot);

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint64_t order_ = 0;
};

}  // namespace pacecar::ibverbs
