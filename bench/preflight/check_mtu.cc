// Packet sizes: what the interface allows RDMA, and what reaches a peer.
#include <fmt/format.h>

#include "bench/preflight/checks.h"
#include "bench/preflight/roce_mtu.h"

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
    findings.add(FindingId::kMtuFull, port.name(), text);
  } else {
    findings.add(FindingId::kMtuSmall, port.name(),
                 fmt::format("{}; {} needs {}, on the switches too", text, kRdmaMtus.front(),
                             kRdmaMtus.front() + kRoceHeaders),
                 {{"NETDEV", netdev->name}});
  }
}

void check_plain_interfaces(const Facts& facts, Findings& findings) {
  for (const Netdev& netdev : facts.netdevs) {
    if (netdev.virtual_device || !netdev.up || netdev.mtu > kEthernetMtu || netdev.mtu == 0) {
      continue;
    }
    findings.add(FindingId::kMtuNoJumbo, netdev.name,
                 fmt::format("MTU {}: with 9000, if the network allows it, soft:udp costs less CPU",
                             netdev.mtu),
                 {{"NETDEV", netdev.name}});
  }
}

void check_peer(const PeerPath& peer, Findings& findings) {
  if (!peer.error.empty()) {
    findings.add(peer.has_address ? FindingId::kMtuPeerNoRoute : FindingId::kMtuPeerUnknown,
                 peer.host, peer.error, {{"PEER", peer.host}});
  } else if (peer.proof == PathProof::kNone) {
    findings.add(FindingId::kMtuPeerSilent, peer.host,
                 "no answer, even to small packets: a firewall may drop them; start the listener "
                 "there and try again",
                 {{"PEER", peer.host}});
  } else if (peer.largest_bytes < peer.wanted_bytes) {
    findings.add(FindingId::kMtuPeerSmall, peer.host,
                 fmt::format("packets of {} bytes get there {}, those of {} bytes do not: "
                             "RDMA MTU {} at most",
                             peer.largest_bytes,
                             peer.proof == PathProof::kBothWays ? "and back" : "unfragmented",
                             peer.wanted_bytes, rdma_mtu(peer.largest_bytes)),
                 {{"PEER", peer.host}});
  } else if (peer.proof == PathProof::kBothWays) {
    findings.add(FindingId::kMtuPeerBothWays, peer.host,
                 fmt::format("packets of {} bytes went there and came back, unfragmented: "
                             "RDMA MTU {}",
                             peer.largest_bytes, rdma_mtu(peer.largest_bytes)));
  } else {
    findings.add(FindingId::kMtuPeerOneWay, peer.host,
                 fmt::format("packets of {} bytes got there unfragmented (its kernel refused "
                             "them): RDMA MTU {}; for the way back start the listener there",
                             peer.largest_bytes, rdma_mtu(peer.largest_bytes)),
                 {{"PEER", peer.host}});
  }
}

}  // namespace

void check_mtu(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) check_port(facts, port, findings);
  }
  if (facts.rdma.empty()) check_plain_interfaces(facts, findings);
  if (facts.peer) check_peer(*facts.peer, findings);
}

}  // namespace pacecar::preflight
