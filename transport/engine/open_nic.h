// Lists the NICs of this machine, and opens one with the parameters. A build without libfabric or
// libibverbs has no NIC of that kind. Thread rule: any, during set-up.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/engine/nic_list.h"
#include "transport/io/udp/interfaces.h"
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
  bool host_only = false;            // it reaches only this host: there is no link to share
  std::unique_ptr<HostShare> share;  // of its link; null: no link, or not shared
};

// The rate at which the NIC begins, before its link has been measured; 0: its line rate.
Rate first_rate(const OpenedNic& nic);

// Divides the NIC's link among the processes of this host that use it, if PACECAR_SHARE allows it
// and shared memory is available.
void share_link(OpenedNic& nic, const Params& params, const LogSink& log);

std::vector<NicCandidate> list_nics();

// Errors: those of the kind of NIC; each names the device and the cure.
Result<OpenedNic> open_nic(const NicCandidate& candidate, const Params& params, const LogSink& log);

// The path below /sys/devices of a PCI address such as "0000:3b:00.0"; empty: there is no such
// device.
std::string pci_device_path(const std::string& address);

// A software NIC on a DPDK device. Errors: kUnavailable without DPDK, and those of open_dpdk().
Result<OpenedNic> open_dpdk_nic(const NicCandidate& candidate, const Params& params,
                                const LogSink& log);

// Errors: kUnavailable (no libfabric), kNotFound (no such provider or domain), kInvalidArgument
// (the provider lacks something), and the provider's errors.
Result<OpenedNic> open_ofi_nic(const NicCandidate& candidate, const Params& params,
                               const LogSink& log);

// The RDMA NICs of this machine. Without libibverbs: the kernel's devices, with the missing library
// as their flaw.
std::vector<NicCandidate> list_verbs_nics();

// Errors: kNotFound, and those of VerbsNic::open.
Result<OpenedNic> open_verbs_nic(const NicCandidate& candidate, const Params& params,
                                 const LogSink& log);

// The software NIC of a process that shares its address with other processes. It uses standard RoCE
// v2, so that it interoperates with the NICs of other processes, hosts and vendors. Takes the first
// free slot of the interface's address (roce::port_of_slot), and ignores
// PACECAR_WIRE. Errors: kUnavailable (all slots are taken), kNotFound (no address),
// kInvalidArgument (PACECAR_SECURITY=encrypt), kSystem.
Result<OpenedNic> open_process_nic(const InterfaceInfo& interface, const Params& params,
                                   const LogSink& log);

// For packets that have no room for tags (standard RoCE, InfiniBand, libfabric): logs that the
// NIC's packets carry none, unless PACECAR_SECURITY=off. `packets` names the kind of packets.
// Errors: kInvalidArgument with PACECAR_SECURITY=encrypt, unless the wire format depends on the
// peer (`by_peer`).
Result<void> accept_without_tags(std::string_view nic, std::string_view packets, bool by_peer,
                                 const Params& params, const LogSink& log);

}  // namespace pacecar
