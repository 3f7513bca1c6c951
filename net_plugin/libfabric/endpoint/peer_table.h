// An endpoint's peers, by name and by number in the address vector. A peer that failed may be
// called again; only where many are gone, their places are for others. Under the domain's lock.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "net_plugin/libfabric/endpoint/peer.h"

namespace pacecar::fabric {

class PeerTable {
 public:
  explicit PeerTable(Domain& domain) : domain_(domain) {}
  ~PeerTable();
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  int bind(AddressVector& vector);  // As fi_ep_bind.
  bool has_vector() const { return vector_ != nullptr; }

  std::deque<Peer>& all() { return peers_; }
  const std::deque<Peer>& all() const { return peers_; }
  // The peer of this name, which is new if it is not known. Throws std::bad_alloc.
  Peer& named(const Address& name);
  // A further name of a peer that has several addresses.
  void add_name(const Address& name, Peer& peer) { by_name_.emplace(name, &peer); }
  Peer* at(fi_addr_t address);  // nullptr: the address vector has no such address.
  // The peer's number in the address vector; FI_ADDR_NOTAVAIL: it has none.
  fi_addr_t source_of(Peer& peer) const;
  // Whether a caller of this name may become a peer.
  using IsInUse = std::function<bool(const Peer&)>;  // by operations, receives or messages
  bool admits(const Address& name, const IsInUse& is_in_use);

  // From now on the peer has no connections, and reads none of our memory, because the token is
  // new. Returns the completions that it held. Throws std::bad_alloc: then nothing has changed.
  std::deque<PendingCompletion> reset(Peer& peer) const;
  void revoke_tokens();  // From now on peers read none of our memory.

 private:
  static constexpr size_t kMaxUnprovenOfHost = 1024;  // peers of one host: see admits()
  static constexpr size_t kMaxUnproven = 4096;        // peers of all hosts

  Peer disconnected() const;
  bool is_unproven(const Peer& peer) const;
  bool has_room_for(const Address& name) const;

  Domain& domain_;
  AddressVector* vector_ = nullptr;
  std::deque<Peer> peers_;  // by PeerId; a deque: peers do not move
  std::vector<Peer*> free_;
  std::map<Address, Peer*> by_name_;
  std::vector<Peer*> by_address_;  // a cache of the address vector, of cached_version_
  uint64_t cached_version_ = 0;
};

}  // namespace pacecar::fabric
