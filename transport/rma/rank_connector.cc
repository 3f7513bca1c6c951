#include "transport/rma/rank_connector.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/attended_time.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"

namespace pacecar::rma {
namespace {

// join() fails when no rank has connected for this long. PACECAR_CONNECT_TIMEOUT limits the
// connections that this rank makes.
constexpr Duration kPatience = Duration::from_s(60);

}  // namespace

RankConnector::RankConnector(Context& context, size_t nic, Listener& listener, size_t rank,
                             size_t ranks, Record* records, const Memory* memory)
    : context_(context),
      nic_(nic),
      listener_(listener),
      rank_(rank),
      records_(records),
      memory_(memory),
      calls_(ranks),
      outboxes_(ranks),
      inboxes_(ranks) {}

Result<void> RankConnector::connect_all(std::span<const Handle> handles, uint32_t weight) {
  const ConnectOptions options{.weight = weight, .puts = true};
  // Each rank begins with the one after itself, so that not all connect to the same one.
  for (size_t i = 1; i <= handles.size(); ++i) {
    const size_t rank = (rank_ + i) % handles.size();
    ASSIGN_OR_RETURN(calls_[rank], context_.connect(nic_, handles[rank], options));
  }
  AttendedTime time(clock_now());  // this process may have been stopped
  Instant moved_at = clock_now();
  while (missing() < calls_.size()) {
    context_.progress(nic_);
    bool moved = false;
    for (size_t rank = 0; rank < calls_.size(); ++rank) {
      ASSIGN_OR_RETURN(const auto called, call(rank));
      moved |= called;
    }
    ASSIGN_OR_RETURN(const auto accepted, accept());
    ASSIGN_OR_RETURN(const auto identified, identify());
    moved |= accepted || identified;
    const Instant now = time.at(clock_now());
    if (moved) moved_at = now;
    if (now - moved_at > kPatience) {
      return fail(ErrorCode::kPeer,
                  fmt::format("rank {} has not connected, or cannot be reached: look for the first "
                              "error there",
                              missing()));
    }
    if (!moved) context_.rest(nic_);
  }
  return {};
}

size_t RankConnector::missing() const {
  size_t rank = 0;
  while (rank < calls_.size() && inboxes_[rank] && outboxes_[rank] && outboxes_[rank]->idle()) {
    ++rank;
  }
  return rank;
}

Result<void> RankConnector::check_nic(size_t nic) const {
  if (nic == nic_) return {};
  return fail(ErrorCode::kUnavailable,
              fmt::format("a rank is reached over {} and not over {}: one-sided operations need "
                          "NICs of one network on all ranks (PACECAR_NICS)",
                          context_.nics()[nic].name, context_.nics()[nic_].name));
}

// Advances the connection to one rank.
Result<bool> RankConnector::call(size_t rank) {
  if (outboxes_[rank]) {
    RETURN_IF_ERROR(outboxes_[rank]->advance());
    return false;
  }
  ASSIGN_OR_RETURN(auto connection, calls_[rank]->poll());
  if (connection == nullptr) return false;
  calls_[rank].reset();
  RETURN_IF_ERROR(check_nic(connection->nic()));
  Record* const places = records_ + (2 * rank + 1) * kRecords;
  outboxes_[rank].emplace(std::move(connection), places, memory_);
  outboxes_[rank]->add({.kind = RecordKind::kHello, .value = rank_}, nullptr);
  return true;
}

Result<bool> RankConnector::accept() {
  ASSIGN_OR_RETURN(auto connection, listener_.accept());
  if (connection == nullptr) return false;
  RETURN_IF_ERROR(check_nic(connection->nic()));
  if (accepted_ == inboxes_.size())
    return fail(ErrorCode::kPeer, "more ranks have connected than the group has");
  Record* const places = records_ + 2 * accepted_++ * kRecords;
  unidentified_.emplace_back(std::move(connection), places, memory_);
  RETURN_IF_ERROR(unidentified_.back().open());
  return true;
}

Result<bool> RankConnector::identify() {
  bool moved = false;
  for (auto inbox = unidentified_.begin(); inbox != unidentified_.end();) {
    ASSIGN_OR_RETURN(const auto record, inbox->next());
    if (!record) {
      ++inbox;
      continue;
    }
    const uint64_t rank = record->value;
    if (record->kind != RecordKind::kHello || rank >= inboxes_.size() || inboxes_[rank]) {
      return fail(ErrorCode::kPeer, fmt::format("a rank has the invalid number {} of {}: start "
                                                "each rank once, with the same version of Pacecar",
                                                rank, inboxes_.size()));
    }
    inboxes_[rank].emplace(std::move(*inbox));
    inbox = unidentified_.erase(inbox);
    moved = true;
  }
  return moved;
}

}  // namespace pacecar::rma
