// The RDMA devices of this machine, and one opened device: its capabilities, and the port that is
// used. Reads the device and sysfs at set-up. Thread rule: one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/nic/rc_endpoint.h"
#include "transport/verbs/gid_choice.h"

namespace pacecar {

// Owning pointers for the objects of libibverbs. An object must not outlive the object it was made
// from: members are declared in that order.
// Deletes with the library's function, which fails only if the device, and so the object, is gone.
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
// without the library; kSystem if the library returns no list.
Result<std::vector<VerbsPortInfo>> list_verbs_ports();

// A port's nominal rate, by active width and speed as InfiniBand codes them; 0: unknown.
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
  bool port_active() const;  // Asks the driver.
};

}  // namespace pacecar
