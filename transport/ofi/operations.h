// OfiOperations: what a libfabric NIC has posted to the provider, which returns their addresses: so
// they never move while the NIC exists. Bounded; allocates once. Thread rule: one owner.
#pragma once

#include <rdma/fabric.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/nic/nic.h"

namespace pacecar {

struct OfiOperation {
  enum class Kind : uint8_t { kFree, kWrite, kMessage };

  bool reads(uint32_t memory) const { return kind == Kind::kWrite && local_key == memory; }

  fi_context2 context{};  // the provider's own; must come first
  QueuePairId queue_pair = 0;
  uint64_t number = 0;  // of the work request in its queue pair's WorkQueue
  Bytes bytes = 0;
  Instant departure;  // of a write: when its last byte leaves, if nothing delays it
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  Kind kind = Kind::kFree;
  uint8_t endpoint = 0;
  uint32_t immediate = 0;
  bool finishes = true;   // completes its work request
  bool notifies = false;  // the peer must be notified when it is done
};

class OfiOperations {
 public:
  explicit OfiOperations(uint32_t count) : operations_(count) {
    free_.reserve(count);
    free_all();
  }

  // nullptr: all are in use.
  OfiOperation* take(OfiOperation::Kind kind) {
    if (free_.empty()) return nullptr;
    OfiOperation* const operation = free_.back();
    free_.pop_back();
    *operation = OfiOperation{.kind = kind};
    return operation;
  }
  void give_back(OfiOperation& operation) {
    operation.kind = OfiOperation::Kind::kFree;
    free_.push_back(&operation);
  }
  size_t in_use() const { return operations_.size() - free_.size(); }
  // The operation of a context that the provider returned; nullptr: not ours, or not in use.
  OfiOperation* find(void* context) {
    auto* const operation = static_cast<OfiOperation*>(context);
    const bool ours =
        operation >= operations_.data() && operation < operations_.data() + operations_.size();
    return ours && operation->kind != OfiOperation::Kind::kFree ? operation : nullptr;
  }
  // Call it only when no operation is at the provider.
  void free_all() {
    free_.clear();
    for (OfiOperation& operation : operations_) give_back(operation);
  }

  std::vector<OfiOperation>& all() { return operations_; }
  // Whether a write from the memory with this key is at the provider.
  bool reads(uint32_t local_key) const {
    return std::ranges::any_of(operations_, [local_key](const OfiOperation& operation) {
      return operation.reads(local_key);
    });
  }

 private:
  std::vector<OfiOperation> operations_;
  std::vector<OfiOperation*> free_;
};

}  // namespace pacecar
