#include "transport/io/dpdk/neighbors/neighbors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/wire/address.h"

namespace pacecar {
namespace {

using Kind = NeighborMessage::Kind;

size_t set_of(const Address& address) {
  uint64_t high = 0;
  uint64_t low = 0;
  std::memcpy(&high, address.ip.data(), sizeof high);
  std::memcpy(&low, address.ip.data() + sizeof high, sizeof low);
  constexpr uint64_t kOdd = 0x9E37'79B9'7F4A'7C15;  // 2^64 over the golden ratio
  return static_cast<size_t>(((high ^ low) * kOdd) >> 32) % Neighbors::kSets;
}

}  // namespace

Neighbors::Neighbors(const Self& self, NextHop next_hop)
    : self_(self), next_hop_(std::move(next_hop)), entries_(kCapacity) {
  learn(self.address, self.mac, Instant::never());  // On a loopback all ends have the same address.
}

Neighbors::Entry* Neighbors::look_up(const Address& address) {
  Entry* const set = &entries_[set_of(address) * kWays];
  for (Entry* entry = set; entry != set + kWays; ++entry) {
    if (entry->used && entry->address.ip == address.ip) return entry;
  }
  return nullptr;
}

// Replaces the entry with the oldest confirmation or question.
Neighbors::Entry& Neighbors::make(const Address& address) {
  Entry* const set = &entries_[set_of(address) * kWays];
  const auto rank = [](const Entry& e) {
    return std::pair(e.used, std::max(e.confirmed, e.asked).ns());
  };
  Entry& entry = *std::min_element(
      set, set + kWays, [&](const Entry& a, const Entry& b) { return rank(a) < rank(b); });
  entry = Entry{.address = {.ip = address.ip}, .used = true};
  find_next_hop(entry);
  return entry;
}

void Neighbors::find_next_hop(Entry& entry) {
  entry.next_hop = next_hop_(entry.address);
  if (entry.next_hop.ip != entry.address.ip && std::ranges::count(gateways_, entry.next_hop) == 0) {
    gateways_.push_back(entry.next_hop);
  }
}

Neighbors::Found Neighbors::find(const Address& address, Instant now) {
  Entry* entry = look_up(address);
  if (entry == nullptr) {
    entry = &make(address);
    entry->asked = now;
    const Entry* const gateway = look_up(entry->next_hop);
    if (gateway == nullptr || !gateway->known) return {.ask = true};
    fill(*entry, gateway->mac, gateway->confirmed);
  }
  Found found{.headers = entry->known ? &entry->headers : nullptr};
  const bool wanted = !entry->known || now - entry->confirmed > kFresh;
  if (wanted && now - entry->asked > kAskInterval) {
    entry->asked = now;
    found.ask = true;
    find_next_hop(*entry);  // its route may have come or changed
  }
  return found;
}

NeighborMessage Neighbors::question(const Address& target) const {
  return {.kind = Kind::kQuestion,
          .sender = self_.address,
          .sender_mac = self_.mac,
          .target = next_hop_(target)};
}

NeighborMessage Neighbors::announcement() const {
  return {.kind = Kind::kAnnouncement, .sender = self_.address, .sender_mac = self_.mac};
}

void Neighbors::fill(Entry& entry, const MacAddress& mac, Instant now) {
  if (!entry.known || entry.mac != mac) {
    entry.headers = HeaderTemplate({.source_mac = self_.mac,
                                    .destination_mac = mac,
                                    .source = self_.address,
                                    .destination = entry.address,
                                    .vlan = self_.vlan});
  }
  entry.mac = mac;
  entry.known = true;
  entry.confirmed = now;
}

// `address` is on the link. True: it was unknown before.
bool Neighbors::learn(const Address& address, const MacAddress& mac, Instant now) {
  Entry* known = look_up(address);
  Entry& entry = known != nullptr ? *known : make(address);
  const bool is_new = !entry.known;
  fill(entry, mac, now);
  if (std::ranges::count(gateways_, address.ip, &Address::ip) > 0) {
    for (Entry& other : entries_) {
      if (other.used && other.next_hop.ip == address.ip) fill(other, mac, now);
    }
  }
  return is_new;
}

std::optional<NeighborMessage> Neighbors::receive(const NeighborMessage& message, Instant now) {
  const bool others = is_ipv4(message.sender) != is_ipv4(self_.address);
  const bool unspecified = message.sender.ip == std::array<uint8_t, 16>{} ||
                           (is_ipv4(message.sender) && message.sender.ip[12] == 0);
  if (others || unspecified || message.sender.ip == self_.address.ip) return std::nullopt;
  const bool to_us = message.target.ip == self_.address.ip;
  if (message.kind != Kind::kAnnouncement && !to_us) return std::nullopt;
  // A host behind a gateway has the gateway's MAC address, and must not set another.
  const bool on_link = next_hop_(message.sender).ip == message.sender.ip;
  const bool is_new = on_link && learn(message.sender, message.sender_mac, now);
  if (message.kind == Kind::kAnswer) return std::nullopt;
  if (message.kind == Kind::kAnnouncement && !is_new) return std::nullopt;
  return NeighborMessage{.kind = Kind::kAnswer,
                         .sender = self_.address,
                         .sender_mac = self_.mac,
                         .target = message.sender,
                         .target_mac = message.sender_mac};
}

}  // namespace pacecar
