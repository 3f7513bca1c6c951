#include "net_plugin/libfabric/endpoint/peer_table.h"

#include "transport/base/random_word.h"

namespace pacecar::fabric {

PeerTable::~PeerTable() {
  if (vector_ != nullptr) --vector_->users;
}

// An atomic store, as the compiler may drop plain stores before the end of an object.
void PeerTable::revoke_tokens() {
  for (Peer& peer : peers_) std::atomic_ref(peer.token[0]) = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before the memory is used again
}

int PeerTable::bind(AddressVector& vector) {
  if (vector_ != nullptr) return -FI_EINVAL;
  vector_ = &vector;
  ++vector_->users;
  return 0;
}

Peer PeerTable::disconnected() const {
  return {.domain = &domain_,
          .token = {random_u64(), random_u64()},
          .outbox = std::make_unique<Outbox>(domain_.context_of_process())};
}

Peer& PeerTable::named(const Address& name) {
  const auto known = by_name_.find(name);
  if (known != by_name_.end()) return *known->second;
  Peer made = disconnected();
  made.name = name;
  if (!free_.empty()) {
    Peer& peer = *free_.back();
    made.number = peer.number;
    by_name_.emplace(name, &peer);
    free_.pop_back();
    return peer = std::move(made);
  }
  made.number = static_cast<PeerId>(peers_.size());
  Peer& peer = peers_.emplace_back(std::move(made));
  by_name_.emplace(name, &peer);
  return peer;
}

std::deque<PendingCompletion> PeerTable::reset(Peer& peer) const {
  Peer fresh = disconnected();
  fresh.number = peer.number;
  fresh.name = peer.name;
  fresh.serving = peer.serving;
  auto held = std::move(peer.held_completions);
  peer = std::move(fresh);
  return held;
}

Peer* PeerTable::at(fi_addr_t address) {
  if (cached_version_ != vector_->version) {
    by_address_.clear();
    cached_version_ = vector_->version;
  }
  if (address < by_address_.size() && by_address_[address] != nullptr) return by_address_[address];
  const Address* const name = vector_->names.find(address);
  if (name == nullptr) return nullptr;
  if (by_address_.size() <= address) by_address_.resize(address + 1);
  return by_address_[address] = &named(*name);
}

fi_addr_t PeerTable::source_of(Peer& peer) const {
  if (peer.source_version != vector_->version) {
    peer.source = vector_->names.number_of(peer.name).value_or(FI_ADDR_NOTAVAIL);
    peer.source_version = vector_->version;
  }
  return peer.source;
}

bool PeerTable::is_unproven(const Peer& peer) const {
  return !peer.free && !peer.outbox->is_open() && !vector_->names.number_of(peer.name);
}

// A greeting proves nothing. So the number of peers that are neither connected nor in the address
// vector is bounded, of one host and of all.
bool PeerTable::has_room_for(const Address& name) const {
  size_t of_all = 0;
  size_t of_host = 0;
  for (const Peer& peer : peers_) {
    if (!is_unproven(peer)) continue;
    ++of_all;
    of_host += same_ip(peer.name, name) ? 1 : 0;
  }
  return of_host < kMaxUnprovenOfHost && of_all < kMaxUnproven;
}

bool PeerTable::admits(const Address& name, const IsInUse& is_in_use) {
  if (by_name_.contains(name) || vector_->names.number_of(name) || has_room_for(name)) return true;
  for (Peer& peer : peers_) {
    if (!is_unproven(peer) || !peer.is_gone() || is_in_use(peer)) continue;
    std::erase_if(by_name_, [&](const auto& named) { return named.second == &peer; });
    free_.push_back(&peer);
    peer.free = true;
  }
  by_address_.clear();
  return has_room_for(name);
}

}  // namespace pacecar::fabric
