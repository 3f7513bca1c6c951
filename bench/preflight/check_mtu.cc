// Packet sizes: what the interface allows RDMA, and what reaches a peer.
#include <fmt/format.h>

#include <algorithm>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

constexpr uint64_t kEthernetMtu = 1500;  // IEEE 802.3, without jumbo frames

void check_port(const Facts& facts, const RdmaPort& port, Findings& findings) {
  const Netdev* netdev = facts.netdev(port.netdev);
  if (!port.ethernet || netdev == nullptr || netdev->mtu == 0) return;
  const uint64_t mtu = rdma_mtu(netdev->mtu);
  const std::string text =
      fmt::format("interface {} has MTU {}: RDMA MTU {}", netdev->name, netdev->mtu, mtu);
  if (mtu == kRdmaMtus.front()) {
    findings.add("mtu.full", about(port), "{}", text);
  } else {
    findings.add("mtu.small", about(port), "{}; {} needs {}, on the switches too", text,
                 kRdmaMtus.front(), kRdmaMtus.front() + kRoceHeaders);
  }
}

void check_plain_interfaces(const Facts& facts, Findings& findings) {
  for (const Netdev& netdev : facts.netdevs) {
    if (netdev.virtual_device || !netdev.up || netdev.mtu > kEthernetMtu || netdev.mtu == 0) {
      continue;
    }
    findings.add("mtu.no_jumbo", {netdev.name, {{"NETDEV", netdev.name}}},
                 "MTU {}: with 9000, if the network allows it, soft:udp costs less CPU",
                 netdev.mtu);
  }
}

// `sent`: the largest packets that an interface of this host sends; 0: not known.
void check_peer(const PeerPath& peer, uint64_t sent, Findings& findings) {
  const Subject subject{peer.host, {{"PEER", peer.host}}};
  const uint64_t bytes = peer.largest_bytes;
  if (!peer.error.empty()) {
    findings.add("mtu.peer_unreachable", subject, "{}", peer.error);
  } else if (bytes == 0) {
    findings.add("mtu.peer_silent", subject,
                 "no answer, even to small packets: it is down, a firewall drops ping's, or two "
                 "hosts have one MAC address");
  } else if (peer.failed_bytes > 0 && (sent == 0 || peer.failed_bytes <= sent)) {
    findings.add("mtu.peer_small", subject,
                 "packets of {} bytes get there and back, those of {} bytes do not: RDMA MTU {} at "
                 "most; software NICs find out what passes, and PACECAR_MTU={} spares them that",
                 bytes, peer.failed_bytes, rdma_mtu(bytes), rdma_mtu(bytes));
  } else {
    findings.add("mtu.peer_both_ways", subject,
                 "packets of {} bytes went there and came back, unfragmented: RDMA MTU {}", bytes,
                 rdma_mtu(bytes));
  }
}

}  // namespace

void check_mtu(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) check_port(facts, port, findings);
  }
  if (facts.rdma.empty()) check_plain_interfaces(facts, findings);
  uint64_t sent = 0;
  for (const Netdev& netdev : facts.netdevs) {
    if (netdev.up && netdev.name != "lo") sent = std::max(sent, netdev.mtu);
  }
  if (facts.peer) check_peer(*facts.peer, sent, findings);
}

}  // namespace pacecar::preflight
