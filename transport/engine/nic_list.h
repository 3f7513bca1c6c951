// Which NICs a process uses: PACECAR_NICS against what the machine has.
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
  std::string flaw = {};       // why it is not usable, with the cure, where that is known

  std::string name() const;
};

// NICs that are used as one.
using NicGroup = std::vector<NicCandidate>;

// `list` is a comma list of NAME, DEVICE (the first NIC in `candidates` that is on it), several of
// these joined by + (used as one) and ^either (not this one). What follows a DPDK device's name and
// has a '=' are its arguments; such a device need not be among the candidates. Without a positive
// entry: every usable RDMA NIC; where there is none, a software NIC on every usable interface but
// the loopback, which serves when there is no other. Errors: kInvalidArgument for an entry of a
// kind that this version does not have or a NIC that is joined twice, kNotFound for a NIC that is
// not there or not usable, or when nothing is left, kUnavailable for one with a flaw.
Result<std::vector<NicGroup>> choose_nics(std::string_view list,
                                          std::span<const NicCandidate> candidates);

// The NIC's rail by `list`, a comma list of NAME=NUMBER or DEVICE=NUMBER; nullopt: it has none.
// Errors: kInvalidArgument for an entry of another form.
Result<std::optional<uint16_t>> rail_of(std::string_view list, const NicCandidate& nic);

}  // namespace pacecar
