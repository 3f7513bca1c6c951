// The facts about a host. read_facts() reads them once, and the checks use nothing else. nullopt or
// an empty string: not known. Pure values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/preflight/text.h"
#include "transport/base/units.h"

namespace pacecar::preflight {

struct Gid {
  uint64_t index = 0;
  bool roce_v2 = false;
  std::array<uint8_t, 16> address{};
  std::string netdev;
};

using Counters = std::map<std::string, uint64_t>;

struct RdmaPort {
  std::string device;
  uint64_t number = 0;
  bool ethernet = false;
  std::string state;       // "ACTIVE"
  std::string phys_state;  // "LinkUp"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::vector<Gid> gids;   // the empty ones left out
  std::string netdev;
  std::optional<uint64_t> default_tos;  // of the RDMA connection manager
  std::string forced_traffic_class;
  Counters losses;
  Counters growth;  // of losses, while watched

  bool active() const { return state == "ACTIVE"; }
  std::string name() const { return device + "/" + std::to_string(number); }
};

struct RdmaDevice {
  std::string name;
  std::string firmware;
  std::string node_guid;
  std::string driver;       // of the PCI device, such as mlx5_core; empty: a software device
  std::string pci_address;  // empty: a software device
  std::string node;         // in /dev; empty: none
  int open_error = 0;       // errno of opening the node
  std::vector<RdmaPort> ports;

  bool is_software() const { return pci_address.empty(); }
};

struct Netdev {
  std::string name;
  uint64_t mtu = 0;
  bool up = false;
  bool virtual_device = false;  // has no device below it: loopback, bridge, tunnel
  // Priorities, one bit each:
  std::optional<uint8_t> ecn_notify;  // those on which congestion notifications are sent
  std::optional<uint8_t> ecn_react;   // those on which the adapter reacts to them
  std::optional<uint8_t> pfc;
  Counters pauses;  // received
};

enum class PciKind : uint8_t { kOther, kNic, kGpu };

struct PciDevice {
  std::string address;
  PciKind kind = PciKind::kOther;
  uint64_t vendor = 0;
  std::optional<uint64_t> numa_node;
  std::string link_speed;  // "16.0 GT/s PCIe"
  std::string max_link_speed;
  std::optional<uint64_t> link_width;
  std::optional<uint64_t> max_link_width;
  std::string iommu_type;            // "identity", "DMA", "DMA-FQ"
  std::vector<std::string> bridges;  // addresses, from the root down
};

enum class AcsState : uint8_t { kUnreadable, kOff, kRedirects };

struct Process {
  std::optional<uint64_t> memlock_bytes;  // UINT64_MAX: unlimited
  std::optional<uint64_t> open_files;
  bool may_lock_memory = false;    // CAP_IPC_LOCK
  bool may_force_buffers = false;  // CAP_NET_ADMIN
  Ranges cpus;
  std::optional<double> cpu_quota;  // CPUs; nullopt: no limit known
  std::string cpu_quota_file;
  bool in_container = false;
};

struct Cpu {
  std::map<std::string, uint64_t> governors;  // CPUs by governor
  std::optional<uint64_t> deepest_idle_us;    // of the states in use, time to wake
  std::map<uint64_t, Ranges> numa_nodes;      // CPUs by node
  std::optional<uint64_t> huge_pages;
};

struct Software {
  std::string kernel;
  std::string os;
  std::string kernel_command_line;
  std::vector<std::string> modules;  // loaded modules of RDMA and GPUs
  std::string libibverbs;            // path; empty: not found
  std::vector<std::string> providers;
  std::string nccl;           // path with the version
  std::string nvidia_driver;  // first line of its version file
  bool iommu_groups = false;
  std::optional<uint64_t> receive_buffer_max;
  std::optional<uint64_t> send_buffer_max;

  bool has_module(std::string_view name) const {
    return std::ranges::find(modules, name) != modules.end();
  }
};

// Pacecar's own parameters.
struct Settings {
  std::string version;
  std::string gid_index;  // as written; empty: not set
  Bytes socket_buffer = 0;
  std::string error;      // why the parameters cannot be used; empty: they can
  std::string nics;       // that a job opens with them; empty: not tried
  std::string nic_error;  // why it opens none
  std::vector<std::string> warnings;
};

// What drivers subtract from an interface's MTU for headers before they round down to an RDMA MTU:
// GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4 (Linux, include/rdma/ib_addr.h, iboe_get_mtu).
inline constexpr uint64_t kRoceHeaders = 96;

// InfiniBand Architecture Specification, MTU encodings; largest first.
inline constexpr std::array<uint64_t, 5> kRdmaMtus = {4096, 2048, 1024, 512, 256};

// The RDMA MTU that fits into packets of `ip_bytes`, or 0.
constexpr uint64_t rdma_mtu(uint64_t ip_bytes) {
  for (const uint64_t mtu : kRdmaMtus) {
    if (mtu + kRoceHeaders <= ip_bytes) return mtu;
  }
  return 0;
}

// Which packets reach a peer and come back. Sizes are of IP packets with headers, in bytes.
struct PeerPath {
  std::string host;
  std::string error;           // why no packet could be sent; empty: they were
  uint64_t largest_bytes = 0;  // that was answered; 0: none
  uint64_t failed_bytes = 0;   // the next larger ones, which were not; 0: all that were tried were
};

struct Facts {
  std::vector<RdmaDevice> rdma;
  std::vector<Netdev> netdevs;
  std::optional<size_t> interfaces;         // that are up with an IP address, loopback too
  std::vector<PciDevice> pci;               // NICs and GPUs
  std::map<std::string, AcsState> bridges;  // above them, by address
  Process process;
  Cpu cpu;
  Software software;
  Settings settings;
  std::optional<PeerPath> peer;
  std::optional<Duration> watched;

  // Null if there is none.
  const Netdev* netdev(std::string_view name) const {
    const auto found = std::ranges::find(netdevs, name, &Netdev::name);
    return found == netdevs.end() ? nullptr : &*found;
  }
  const PciDevice* pci_device(std::string_view address) const {
    const auto found = std::ranges::find(pci, address, &PciDevice::address);
    return found == pci.end() ? nullptr : &*found;
  }
};

}  // namespace pacecar::preflight
