// Neighbors: which MAC address a peer has, or the gateway to it, with the headers of packets to it.
// A table of fixed size that forgets those longest not heard of; what others send can fill it but
// not let it grow.
//
// Pure: time is an argument. Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "transport/base/units.h"
#include "transport/io/dpdk/frame.h"
#include "transport/io/dpdk/neighbor_message.h"
#include "transport/io/dpdk/routes.h"

namespace pacecar {

class Neighbors {
 public:
  // Who we are, from whom frames are.
  struct Self {
    MacAddress mac{};
    Address address;
    frame::Vlan vlan = std::nullopt;
  };
  static constexpr size_t kSets = 256;  // a power of two
  static constexpr size_t kWays = 4;
  static constexpr size_t kCapacity = kSets * kWays;
  // A question that gets no answer is asked again after this.
  static constexpr Duration kAskInterval = Duration::from_ms(20);
  // What was heard is believed for this long without being confirmed; then it is asked for again,
  // while it goes on serving.
  static constexpr Duration kFresh = Duration::from_s(30);

  explicit Neighbors(const Self& self, Routes routes = Routes());

  const Self& self() const { return self_; }

  struct Found {
    const HeaderTemplate* headers = nullptr;  // nullptr: not known yet
    bool ask = false;                         // question() is due now
  };
  // `address` is of our family.
  Found find(const Address& address, Instant now);

  // Who is asked for is the target, or the gateway to it.
  NeighborMessage question(const Address& target) const;
  NeighborMessage announcement() const;

  // Takes what a neighbour says; an answer to it, if it is owed one. Newcomers that announce
  // themselves are told of us, so that neither has to ask.
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
  void fill(Entry& entry, const MacAddress& mac, Instant now);
  bool learn(const Address& address, const MacAddress& mac, Instant now);

  Self self_;
  Routes routes_;
  std::vector<Entry> entries_;
};

}  // namespace pacecar
