// Lists the machine's NICs, and opens one with the parameters. Thread rule: any, during set-up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/engine/open/nic_list.h"
#include "transport/nic/nic_port.h"
#include "transport/share/memory/host_share.h"

namespace pacecar {

struct OpenedNic {
  std::string name;      // "soft:udp:eth0"
  std::string device;    // "eth0"
  std::string pci_path;  // below /sys/devices; empty for a device without one
  uint64_t guid = 0;     // unique on this host
  Rate speed;            // from the device, or PACECAR_LINE_RATE; 0: unknown
  std::unique_ptr<NicPort> port;
  bool host_only = false;            // it reaches only this host, without a link to share
  std::unique_ptr<HostShare> share;  // of its link; null: no link, or not shared
};

// The rate at which the NIC begins, before its link has been measured; 0: its line rate.
Rate first_rate(const OpenedNic& nic);

// Divides the link among this host's processes, if PACECAR_SHARE and shared memory allow it.
void share_link(OpenedNic& nic, const Params& params, const LogSink& log);

// `selection`: as of names_interface(); the software NICs that it does not name are secluded.
Result<std::vector<NicCandidate>> list_nics(std::string_view selection = {});

// Errors depend on the kind of NIC; each names the device and the cure.
Result<OpenedNic> open_nic(const NicCandidate& candidate, const Params& params, const LogSink& log);

// Opens the software NIC of a process that shares its address with other processes. It uses
// standard RoCE v2, so that it interoperates with the NICs of other processes, hosts and vendors.
// Takes the first free slot of the interface's address (roce::port_of_slot), and ignores
// PACECAR_WIRE. Errors: kUnavailable (all slots are taken), kNotFound (no address),
// kInvalidArgument (PACECAR_SECURITY=encrypt), kSystem.
Result<OpenedNic> open_process_nic(const InterfaceInfo& interface, const Params& params,
                                   const LogSink& log);

}  // namespace pacecar
