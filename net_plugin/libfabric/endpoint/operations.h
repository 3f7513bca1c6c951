// An endpoint's outstanding operations and their memory: its own operations, receives of offered
// messages, and operations of peers that it serves. Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/core/operation_table.h"
#include "net_plugin/libfabric/endpoint/bound_completions.h"

namespace pacecar::fabric {

class Operations {
 public:
  Operations(Domain& domain, BoundCompletions& completions)
      : domain_(domain), completions_(completions) {}
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  bool full() const { return table_.full(); }
  uint32_t initiated() const { return initiated_; }
  // Requires !full(). A bounce buffer takes the place of `local`.
  Operation& begin(Peer& peer, Operation::Kind kind, const Local& local = {},
                   std::unique_ptr<Bounce> bounce = nullptr);
  // nullptr: it has ended.
  Operation* find(uint64_t number) { return table_.find(number); }
  // The same for a number that this peer has sent; nullptr also if the operation is not with it.
  Operation* find(uint64_t number, const Peer& peer);
  // `visit(operation)` may end that operation.
  template <typename Visit>
  void for_each(Visit visit) {
    table_.for_each([&](uint64_t /*number*/, Operation& operation) { visit(operation); });
  }

  // The registration of a piece of the operation's memory.
  Result<const Memory*> memory_for(Operation& operation, size_t piece, size_t nic);
  bool outstanding_with(const Peer& peer);
  // Whether bytes of large operations move from or to the region.
  bool reach(const MemoryRegion& region);
  // Fills the segments with the first `length` bytes of its memory. False: that is not registered.
  bool describe_segments(Operation& operation);

  // Ends it if the peer has confirmed it and all puts are acknowledged: nothing is sent again.
  void end_if_done(Operation& operation);
  // Reports the completion. `error`: 0, or a fi_errno.
  void end(Operation& operation, int error = 0, const std::string& why = {});

 private:
  static constexpr uint32_t kMaxOperations = 1 << 16;

  void release(Operation& operation);

  Domain& domain_;
  BoundCompletions& completions_;
  OperationTable<Operation> table_{kMaxOperations};
  uint32_t initiated_ = 0;
};

}  // namespace pacecar::fabric
