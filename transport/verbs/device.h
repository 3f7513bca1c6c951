// The RDMA devices of this machine, and one opened device: its capabilities, and the port that is
// used. Reads the device and sysfs at set-up.
//
// Thread rule: one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/nic/caps.h"
#include "transport/nic/rc_endpoint.h"
#include "transport/verbs/gid_choice.h"
#include "transport/verbs/rate_limits.h"

namespace pacecar {

// Owning pointers for the objects of libibverbs. An object must not outlive what it was made from:
// members are declared in that order.
//
// Deletes with the library's own function. A failure means that the device, and with it the object,
// is gone.
template <auto destroy>
struct VerbsDeleter {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};

template <typename T, auto destroy>
using VerbsHandle = std::unique_ptr<T, VerbsDeleter<destroy>>;

using ContextHandle = VerbsHandle<ibv_context, ibv_close_device>;
using DomainHandle = VerbsHandle<ibv_pd, ibv_dealloc_pd>;
using ChannelHandle = VerbsHandle<ibv_comp_channel, ibv_destroy_comp_channel>;
using CompletionQueueHandle = VerbsHandle<ibv_cq, ibv_destroy_cq>;
using SharedReceivesHandle = VerbsHandle<ibv_srq, ibv_destroy_srq>;
using QueuePairHandle = VerbsHandle<ibv_qp, ibv_destroy_qp>;
using MemoryHandle = VerbsHandle<ibv_mr, ibv_dereg_mr>;

// libibverbs is loaded at run time: a host without it lacks RDMA NICs only. We define the library's
// functions under their own names, and call the loaded ones. The data path uses the device's own
// table of functions in any case.
//
// Call it before any function of the library, which stays loaded. Any thread. A replacement
// (LD_PRELOAD) is used, as in programs that are linked with the library. Errors: kUnavailable.
Result<void> load_verbs_library();

// One port of one device, for lists.
struct VerbsPortInfo {
  std::string device;    // mlx5_0
  uint32_t port = 1;     // from 1
  std::string netdev;    // the port's Ethernet interface; empty: none
  std::string pci_path;  // in sysfs; empty for software devices
  uint64_t guid = 0;     // of the node
  Rate rate;
  bool active = false;
};

// Every port of every device; devices that cannot be opened are left out. Errors: kUnavailable
// without the library; kSystem if there is no list.
Result<std::vector<VerbsPortInfo>> list_verbs_ports();

// Nominal rate of a port, from its active width and speed as the InfiniBand specification codes
// them; 0: unknown.
Rate port_rate(const ibv_port_attr& port);

struct VerbsDevice {
  ContextHandle context;
  ibv_device_attr attributes{};
  ibv_device_attr_ex extended{};  // zero where the library or the driver is too old
  ibv_port_attr port_attributes{};
  std::string name;
  uint32_t port = 1;
  bool hardware = true;  // false: the host's processors do its work
  LinkLayer link_layer = LinkLayer::kEthernet;
  GidEntry gid;
  uint32_t mtu = 0;

  // Errors: kNotFound (no such device, port or GID), kInvalidArgument (the wanted GID is unusable),
  // kUnavailable (no library, the port is not active), and the system's errors.
  static Result<VerbsDevice> open(const std::string& name, uint32_t port,
                                  std::optional<uint32_t> gid_index, const LogSink& log);
};

// The counters in sysfs that a port's driver has, under the driver's names, since the port was
// opened: retransmissions, packets out of sequence, CNPs, bad checksums and others. Any thread.
class HardwareCounters {
 public:
  // `folder` has one file per counter. Devices without counters have no such folder.
  explicit HardwareCounters(std::filesystem::path folder);
  static std::filesystem::path folder_of(const std::string& device, uint32_t port);

  // Since construction; in the order of their names.
  std::vector<HardwareCounter> deltas() const;

 private:
  std::map<std::string, uint64_t> read() const;

  std::filesystem::path folder_;
  std::map<std::string, uint64_t> before_;
};

// --- offloads: optional features of a device, which of them are used, and why others are not ---

enum class Offload : uint8_t {
  kTimeStamps,  // completions carry the device's time
  kRateLimits,  // a queue pair of the device has a rate limit
  kCalls,       // work requests are posted by ibv_wr_*, not as structures
};
inline constexpr size_t kOffloads = 3;
inline constexpr uint64_t kBpsPerKbps = 1000;  // libibverbs has rate limits in kb/s

using OffloadSet = std::array<bool, kOffloads>;  // by Offload

// "time_stamps,calls". Error: kInvalidArgument, which lists the valid names.
Result<OffloadSet> parse_offloads(std::string_view text);

class Offloads {
 public:
  Offloads() = default;
  // The device's features, without `unwanted`.
  Offloads(const ibv_device_attr_ex& device, const OffloadSet& unwanted);

  bool uses(Offload which) const { return refused_[static_cast<size_t>(which)].empty(); }
  // Disables an offload; the first reason is kept.
  void refuse(Offload which, std::string_view because);
  // Disables kCalls unless the device makes a queue pair that takes ibv_wr_*.
  void try_calls(ibv_pd* domain, ibv_cq* completions);

  // Of the device's queue pairs, if rate limits are used.
  RateLimits::Bounds limits() const {
    return {.least = Rate::from_bps(limits_.qp_rate_limit_min * kBpsPerKbps),
            .most = Rate::from_bps(limits_.qp_rate_limit_max * kBpsPerKbps)};
  }

  // "offloads: time_stamps; no rate_limits: the device has none for RC queue pairs; ..."
  std::string text() const;

 private:
  std::array<std::string, kOffloads> refused_{"not asked for", "not asked for", "not asked for"};
  ibv_packet_pacing_caps limits_{};
};

// The operations that we post, for ibv_create_qp_ex.
inline constexpr uint64_t kPostedOperations = IBV_QP_EX_WITH_RDMA_WRITE |
                                              IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;

}  // namespace pacecar
