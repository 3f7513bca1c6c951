// Neighbors: the MAC address of each peer, or of the gateway to it, and the headers of packets to
// the peer. A table of fixed size, in which the entry that was confirmed least recently is
// replaced; so other hosts can fill the table, but not make it grow. Pure: time is an argument.
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <vector>

#include "transport/base/units.h"
#include "transport/io/dpdk/neighbors/neighbor_message.h"
#include "transport/io/frame.h"

namespace pacecar {

class Neighbors {
 public:
  // Our own addresses.
  struct Self {
    MacAddress mac{};
    Address address;
    frame::Vlan vlan = std::nullopt;
  };
  static constexpr size_t kSets = 256;  // a power of two
  static constexpr size_t kWays = 4;
  static constexpr size_t kCapacity = kSets * kWays;
  // An unanswered question is repeated after this time.
  static constexpr Duration kAskInterval = Duration::from_ms(20);
  // An entry unconfirmed for this long is asked for again; it is used meanwhile.
  static constexpr Duration kFresh = Duration::from_s(30);

  // The gateway to an address, or the address itself if it is on the link.
  using NextHop = std::function<Address(const Address&)>;

  explicit Neighbors(const Self& self, NextHop next_hop = std::identity());

  const Self& self() const { return self_; }

  struct Found {
    const HeaderTemplate* headers = nullptr;  // nullptr: not known yet
    bool ask = false;                         // question() is due now
  };
  Found find(const Address& address, Instant now);  // `address` is of our family.

  // Asks for the target, or the gateway to it.
  NeighborMessage question(const Address& target) const;
  NeighborMessage announcement() const;

  // Processes a neighbour's message; returns an answer, if it needs one. New neighbours that
  // announce themselves get an answer, so that neither has to ask.
  std::optional<NeighborMessage> receive(const NeighborMessage& message, Instant now);

 private:
  struct Entry {
    Address address;  // port and scope 0
    Address next_hop;
    HeaderTemplate headers;
    MacAddress mac{};
    bool used = false;
    bool known = false;
    Instant confirmed;
    Instant asked;
  };

  Entry* look_up(const Address& address);
  Entry& make(const Address& address);
  void find_next_hop(Entry& entry);
  void fill(Entry& entry, const MacAddress& mac, Instant now);
  bool learn(const Address& address, const MacAddress& mac, Instant now);

  Self self_;
  NextHop next_hop_;
  std::vector<Entry> entries_;
  std::vector<Address> gateways_;  // of all entries so far
};

}  // namespace pacecar
