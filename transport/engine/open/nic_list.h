// The NICs that a process uses: PACECAR_NICS, matched with the machine's NICs. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {

enum class NicKind : uint8_t {
  kVerbs,     // an RDMA NIC, by its device's name
  kSoftUdp,   // a software NIC on UDP sockets: soft:udp:INTERFACE
  kSoftRaw,   // a software NIC on raw sockets: soft:raw:INTERFACE; used only if it is named
  kSoftDpdk,  // a software NIC on a DPDK device: soft:dpdk:DEVICE,KEY=VALUE...; if named
  kOfi,       // a provider of libfabric: ofi:PROVIDER[:DOMAIN]; used only if it is named
};

// A NIC that a process could use.
struct NicCandidate {
  NicKind kind = NicKind::kSoftUdp;
  std::string device;
  std::string arguments = {};  // of a DPDK device: "role=client,id=0"
  bool usable = true;          // up, with an address
  bool loopback = false;       // reaches only this host
  // Other hosts hardly reach it (without a carrier, with only a link-local address, a bridge), or
  // the user's choice of interfaces leaves it out.
  bool secluded = false;
  std::string flaw = {};  // why it is not usable, and the cure; empty: not known

  std::string name() const;
};

using NicGroup = std::vector<NicCandidate>;  // NICs that are used as one.

// Software NICs on these interfaces; those not named by `selection` (names_interface) are secluded.
std::vector<NicCandidate> soft_candidates(std::span<const InterfaceInfo> interfaces,
                                          std::string_view selection = {});

// `list` is a comma list. An entry is a NAME, a DEVICE (its first NIC in `candidates`), several of
// these joined by + (bonded), or one after ^ (excluded). Items with a '=' after a DPDK device are
// its arguments; such a device need not be among the candidates. If no entry names a NIC to use,
// the first of these choices that has any: usable RDMA NICs; software NICs on usable interfaces; on
// secluded interfaces; on the loopback. Errors: kInvalidArgument (unknown kind, NIC bonded twice),
// kNotFound (missing or unusable NIC, or none left), kUnavailable (a NIC with a flaw).
Result<std::vector<NicGroup>> choose_nics(std::string_view list,
                                          std::span<const NicCandidate> candidates);

// The NIC's rail in `list`, a comma list of NAME=NUMBER or DEVICE=NUMBER; nullopt: none. Errors:
// kInvalidArgument (an entry of another form).
Result<std::optional<uint16_t>> rail_of(std::string_view list, const NicCandidate& nic);

}  // namespace pacecar
