// Which NICs a process uses: PACECAR_NICS, matched with the machine's NICs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace pacecar {

enum class NicKind : uint8_t {
  kVerbs,     // an RDMA NIC; named by its device alone
  kSoftUdp,   // a software NIC on UDP sockets; soft:udp:INTERFACE
  kSoftRaw,   // one on raw sockets; soft:raw:INTERFACE; only by this name
  kSoftDpdk,  // one on a DPDK device; soft:dpdk:DEVICE,KEY=VALUE...; only by this name
  kOfi,       // a provider of libfabric; ofi:PROVIDER[:DOMAIN]; only by this name
};

// A NIC that a process could use.
struct NicCandidate {
  NicKind kind = NicKind::kSoftUdp;
  std::string device;
  std::string arguments = {};  // of a DPDK device: "role=client,id=0"
  bool usable = true;          // up, and reachable by an address
  bool loopback = false;       // reaches this host only
  std::string flaw = {};       // why it is not usable, and the cure, if known

  std::string name() const;
};

// NICs that are used as one.
using NicGroup = std::vector<NicCandidate>;

// `list` is a comma list of NAME, DEVICE (its first NIC in `candidates`), several of these joined
// by + (bonded) and ^either (excluded). Items with a '=' after a DPDK device are its arguments;
// such a device need not be among the candidates. Without a positive entry: every usable RDMA NIC;
// if there is none, a software NIC on every usable interface, on the loopback only if there is no
// other. Errors: kInvalidArgument for an unknown kind of NIC or a NIC that is bonded twice,
// kNotFound for a missing or unusable NIC, or if none is left, kUnavailable for one with a flaw.
Result<std::vector<NicGroup>> choose_nics(std::string_view list,
                                          std::span<const NicCandidate> candidates);

// The NIC's rail by `list`, a comma list of NAME=NUMBER or DEVICE=NUMBER; nullopt: none. Errors:
// kInvalidArgument for an entry of another form.
Result<std::optional<uint16_t>> rail_of(std::string_view list, const NicCandidate& nic);

}  // namespace pacecar
