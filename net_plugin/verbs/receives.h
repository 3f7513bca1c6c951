// The receive requests of a queue pair, or of a shared receive queue: id and scatter list of each.
// Thread rule: call with the NIC's mutex held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "net_plugin/verbs/staging.h"
#include "transport/nic/nic.h"

namespace pacecar::ibverbs {

class ProcessNic;

Bytes total_of(const ibv_sge* pieces, int count);

// Memory of a work or receive request. One piece stays; several, and inline data, use staging.
struct ScatterList {
  // Sets the NIC's place of the data. `filled`: the NIC writes there; otherwise the data is copied
  // to the staging now. 0, or an errno.
  template <typename Request>
  int gather(ProcessNic& nic, const ibv_pd* pd, std::span<const ibv_sge> list, bool filled,
             bool in_line, Request* request);
  // Copies what the NIC has written to the pieces. False: the memory of one is deregistered.
  bool scatter(ProcessNic& nic, Bytes bytes) const;
  void give_back(ProcessNic& nic);

  Staging staging;
  const ibv_pd* domain = nullptr;
  std::vector<ibv_sge> pieces;  // final places of the data in `staging`
};

class Receives {
 public:
  explicit Receives(uint32_t most) : slots_(most) {
    for (uint32_t i = most; i > 0; --i) free_.push_back(i - 1);
  }

  size_t posted() const { return slots_.size() - free_.size(); }
  size_t capacity() const { return slots_.size(); }
  // Fills the request for the NIC. 0, or an errno.
  int prepare(ProcessNic& nic, const ibv_pd* pd, const ibv_recv_wr& wr, ReceiveRequest* request);
  // Ends a completed request: its wr_id, and what ScatterList::scatter returns.
  std::pair<uint64_t, bool> finish(ProcessNic& nic, uint64_t slot, Bytes bytes);
  // Drops all pending requests, and returns their wr_ids in the order of posting.
  std::vector<uint64_t> drop_all(ProcessNic& nic);

 private:
  struct Slot {
    uint64_t wr_id = 0;
    uint64_t order = 0;
    bool posted = false;
    ScatterList memory;
  };
  void release(ProcessNic& nic, uint32_t slot);

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint64_t order_ = 0;
};

}  // namespace pacecar::ibverbs
