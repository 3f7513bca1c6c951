// Connects all ranks of a group to one another. A connection's first record names the sending rank.
// Thread rule: one thread at a time.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/pacecar.hpp"
#include "transport/rma/outbox.h"
#include "transport/rma/record.h"

namespace pacecar::rma {

class RankConnector {
 public:
  // `records`: 2 * kRecords for each rank, in `memory`.
  RankConnector(Context& context, size_t nic, Listener& listener, size_t rank, size_t ranks,
                Record* records, const Memory* memory);

  // Blocks until all ranks are connected. Errors: as Group::join.
  Result<void> connect_all(std::span<const Handle> handles, uint32_t weight);
  // After connect_all(); call each once per rank.
  Inbox take_inbox(size_t rank) { return std::move(*inboxes_[rank]); }
  Outbox take_outbox(size_t rank) { return std::move(*outboxes_[rank]); }

 private:
  Result<bool> call(size_t rank);
  Result<bool> accept();
  Result<bool> identify();
  // The first rank that is not joined in both directions; their number: none.
  size_t missing() const;
  Result<void> check_nic(size_t nic) const;

  Context& context_;
  const size_t nic_;
  Listener& listener_;
  const size_t rank_;
  Record* const records_;
  const Memory* const memory_;
  std::vector<std::unique_ptr<Connecting>> calls_;  // by rank; null: connected
  std::vector<std::optional<Outbox>> outboxes_;     // by rank
  std::vector<std::optional<Inbox>> inboxes_;
  std::list<Inbox> unidentified_;  // accepted, first record pending
  size_t accepted_ = 0;
};

}  // namespace pacecar::rma
