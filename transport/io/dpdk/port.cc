#include "transport/io/dpdk/port.h"

#include <fmt/format.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <set>

#include "transport/io/dpdk/eal.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {
namespace {

constexpr uint16_t kReceiveSlots = 1024;
constexpr uint16_t kTransmitSlots = 1024;
constexpr Bytes kLargestMtu = 9000;
constexpr Bytes kLinkBytes = 14 + kVlanTagBytes;
constexpr uint32_t kSparePackets = 64;  // that drivers take ahead of what they return
// What drivers with slots of their own (net_memif, net_af_packet) want their buffers to hold.
constexpr Bytes kSlot = 10240;
constexpr Bytes kLeastRoom = 2048;

// What the device interface does not tell of a driver.
struct Driver {
  std::string_view name;
  bool copies_on_send;
  bool is_memory;
  bool has_slots;             // of its own size, which limit the MTU, not what it says
  bool kernel_is_peer;        // its interface is the other end of the wire
  std::string_view defaults;  // arguments, unless the first of them is given
};
constexpr std::string_view kMemif = "net_memif";
constexpr std::array kDrivers = {
    Driver{kMemif, true, true, true, false, "bsize=10240"},
    Driver{"net_ring", false, true, true, false, ""},
    Driver{"net_af_packet", true, false, true, false, "framesz=10240,blocksz=40960,framecnt=512"},
    Driver{"net_tap", true, false, false, true, ""},
};

const Driver* driver_named(std::string_view name) {
  const auto it = std::ranges::find(kDrivers, name, &Driver::name);
  return it == kDrivers.end() ? nullptr : &*it;
}

std::string with_defaults(const DpdkDevice& device) {
  std::string text = device.name;
  if (!device.arguments.empty()) text += "," + device.arguments;
  const Driver* const driver = driver_named(device.driver());
  if (driver == nullptr || driver->defaults.empty()) return text;
  const std::string_view first = driver->defaults.substr(0, driver->defaults.find('='));
  if (!device.argument(first)) text += "," + std::string(driver->defaults);
  return text;
}

std::string interface_name(uint32_t index) {
  std::array<char, IF_NAMESIZE> name{};
  if (index == 0) return {};
  return if_indextoname(index, name.data()) != nullptr ? name.data() : "";
}

// The devices of this process that are in use. With eal_mutex() held.
std::set<std::string>& devices_in_use() {
  static std::set<std::string> names;
  return names;
}

}  // namespace

void DpdkPort::Closer::operator()(rte_mempool* pool) const { rte_mempool_free(pool); }

Result<std::unique_ptr<DpdkPort>> DpdkPort::open(const DpdkPortConfig& config, const LogSink& log) {
  std::unique_ptr<DpdkPort> port(new DpdkPort);
  const std::lock_guard lock(eal_mutex());  // released before a port that failed is destroyed
  if (auto ok = port->attach(config.device, log); !ok) return tl::unexpected(ok.error());
  if (auto ok = port->configure(config, log); !ok) {
    port->close();
    return tl::unexpected(ok.error());
  }
  return port;
}

DpdkPort::~DpdkPort() {
  const std::lock_guard lock(eal_mutex());
  close();
}

// With eal_mutex() held.
void DpdkPort::close() {
  if (name_.empty()) return;
  run_on_interrupt_thread([this] {
    rte_eth_dev_info info{};
    const bool known = rte_eth_dev_info_get(id_, &info) == 0;
    rte_eth_dev_stop(id_);
    rte_eth_dev_close(id_);
    if (known) rte_dev_remove(info.device);
  });
  devices_in_use().erase(name_);
  name_.clear();
}

Result<void> DpdkPort::attach(const DpdkDevice& device, const LogSink& log) {
  if (devices_in_use().contains(device.name)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the DPDK device '{}' is in use by this process: name it once, or give "
                            "a virtual device another number, such as {}1",
                            device.name, device.driver()));
  }
  if (rte_eth_dev_get_port_by_name(device.name.c_str(), &id_) != 0) {
    const EalWords said(log);
    const int done = rte_dev_probe(with_defaults(device).c_str());
    if (done != 0 || rte_eth_dev_get_port_by_name(device.name.c_str(), &id_) != 0) {
      const std::string cause = said.from_driver(rte_strerror(done != 0 ? -done : ENODEV));
      // Drivers say -1 for all that can go wrong.
      if (done == -EACCES || (done == -1 && geteuid() != 0)) {
        return fail(ErrorCode::kPermission,
                    fmt::format("the DPDK device '{}' may not be used ({}): run as root, or give "
                                "this user CAP_NET_RAW, or the device's /dev/vfio group",
                                device.name, cause));
      }
      return fail(ErrorCode::kNotFound,
                  device.is_pci()
                      ? fmt::format("there is no DPDK device '{}' ({}): bind it to a driver that "
                                    "DPDK knows, such as vfio-pci, with 'dpdk-devbind.py'",
                                    device.name, cause)
                      : fmt::format("the DPDK device '{}' cannot be made ({}): check its name and "
                                    "its arguments '{}'",
                                    device.name, cause, device.arguments));
    }
  }
  name_ = device.name;
  devices_in_use().insert(name_);
  return {};
}

Result<DpdkPort::Pool> DpdkPort::make_pool(const char* purpose, uint32_t buffers,
                                           Bytes room) const {
  static std::atomic<uint32_t> number{0};  // names are unique in the process
  const std::string name = fmt::format("pacecar_{}_{}", purpose, number++);
  // Drivers that copy into their slots need few buffers at a time: the newest ones are still in the
  // cache.
  const char* const order = has_slots_ ? "stack" : "ring_mp_mc";
  Pool pool(rte_pktmbuf_pool_create_by_ops(name.c_str(), buffers, 0, 0,
                                           static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + room),
                                           rte_eth_dev_socket_id(id_), order));
  if (pool) return pool;
  return fail(ErrorCode::kSystem,
              fmt::format("no memory for {} packet buffers of {} bytes for '{}' ({}): reserve huge "
                          "pages with 'echo 512 > /proc/sys/vm/nr_hugepages', or give more with "
                          "'-m MEGABYTES' in PACECAR_DPDK_EAL",
                          buffers, room, name_, rte_strerror(rte_errno)));
}

Result<void> DpdkPort::make_pools(const DpdkPortConfig& config) {
  // Others get what the frames need: net_af_xdp takes no buffers larger than a page of memory.
  const Bytes frame = std::max(mtu_ + kLinkBytes, has_slots_ ? kSlot : kLeastRoom);
  auto receive = make_pool("rx", receive_slots_ + config.receive_burst + kSparePackets, frame);
  if (!receive) return tl::unexpected(receive.error());
  receive_pool_ = std::move(*receive);
  // net_memif joins the pieces of a packet in one slot only if these buffers are larger than slots.
  const uint32_t queued = copies_on_send_ ? 0 : kTransmitSlots;
  auto transmit = make_pool("tx", queued + config.transmit_buffers, frame + 64);
  if (!transmit) return tl::unexpected(transmit.error());
  transmit_pool_ = std::move(*transmit);
  return {};
}

// The error is DPDK's.
tl::expected<Bytes, int> DpdkPort::choose_mtu(const DpdkDevice& device, bool any) const {
  if (any) {
    const auto kernels = find_interface(interface_);
    const Bytes most = kernels ? std::min(kernels->mtu, kLargestMtu) : kLargestMtu;
    return std::min(device.mtu.value_or(most), most);
  }
  if (device.mtu) {
    const int done = rte_eth_dev_set_mtu(id_, static_cast<uint16_t>(*device.mtu));
    if (done != 0) return tl::unexpected(done);
  }
  uint16_t mtu = RTE_ETHER_MTU;
  rte_eth_dev_get_mtu(id_, &mtu);
  return mtu;
}

Result<void> DpdkPort::configure(const DpdkPortConfig& config, const LogSink& log) {
  const EalWords said(log);
  const auto failed = [&](const char* what, int error) {
    return fail(ErrorCode::kSystem,
                fmt::format("the DPDK device '{}' cannot be {} ({}): check that nothing else uses "
                            "it, and its arguments '{}'",
                            name_, what, said.last(rte_strerror(-error)), config.device.arguments));
  };
  rte_eth_dev_info info{};
  if (const int done = rte_eth_dev_info_get(id_, &info); done != 0) return failed("asked", done);
  const Driver* const driver = driver_named(info.driver_name != nullptr ? info.driver_name : "");
  copies_on_send_ = driver != nullptr && driver->copies_on_send &&
                    (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
  is_memory_ = driver != nullptr && driver->is_memory;
  has_slots_ = driver != nullptr && driver->has_slots;
  const bool kernel_is_peer = driver != nullptr && driver->kernel_is_peer;
  if (!kernel_is_peer) interface_ = interface_name(info.if_index);

  is_hardware_ = config.device.is_pci();

  rte_eth_conf conf{};
  if (copies_on_send_) conf.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  if (const int done = rte_eth_dev_configure(id_, 1, 1, &conf); done != 0) {
    return failed("configured", done);
  }
  if (auto mtu = choose_mtu(config.device, has_slots_); mtu) {
    mtu_ = *mtu;
  } else {
    return failed("set to that MTU", mtu.error());
  }

  uint16_t receive_slots = kReceiveSlots;
  uint16_t transmit_slots = kTransmitSlots;
  rte_eth_dev_adjust_nb_rx_tx_desc(id_, &receive_slots, &transmit_slots);
  receive_slots_ = receive_slots;
  if (auto ok = make_pools(config); !ok) return ok;
  int done = rte_eth_rx_queue_setup(id_, 0, receive_slots,
                                    static_cast<unsigned>(rte_eth_dev_socket_id(id_)), nullptr,
                                    receive_pool_.get());
  if (done != 0) return failed("given a receive queue", done);
  done = rte_eth_tx_queue_setup(id_, 0, transmit_slots,
                                static_cast<unsigned>(rte_eth_dev_socket_id(id_)), nullptr);
  if (done != 0) return failed("given a transmit queue", done);
  // The server need not be there yet.
  can_reconnect_ = config.device.driver() == kMemif && config.device.argument("role") != "server";
  done = rte_eth_dev_start(id_);
  started_ = done == 0;
  if (!started_ && !can_reconnect_) return failed("started", done);
  // Neighbours ask by multicast. What a virtual device cannot filter comes in anyway.
  rte_eth_allmulticast_enable(id_);
  rte_ether_addr mac{};
  rte_eth_macaddr_get(id_, &mac);
  if (!rte_is_valid_assigned_ether_addr(&mac)) {
    rte_eth_random_addr(mac.addr_bytes);
    rte_eth_dev_default_mac_addr_set(id_, &mac);
  }
  std::copy_n(mac.addr_bytes, mac_.size(), mac_.begin());
  return {};
}

Rate DpdkPort::line_rate() const {
  rte_eth_link link{};
  if (!is_hardware_ || rte_eth_link_get_nowait(id_, &link) != 0) return Rate();
  if (link.link_speed == RTE_ETH_SPEED_NUM_NONE || link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN) {
    return Rate();
  }
  return Rate::from_bps(uint64_t{link.link_speed} * 1'000'000);
}

void DpdkPort::reconnect() {
  run_on_interrupt_thread([this] { rte_eth_dev_stop(id_); });
  started_ = rte_eth_dev_start(id_) == 0;
}

bool DpdkPort::link_is_up() const {
  rte_eth_link link{};
  return started_ && rte_eth_link_get_nowait(id_, &link) == 0 &&
         link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace pacecar
