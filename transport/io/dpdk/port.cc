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

#include "transport/base/return_if_error.h"
#include "transport/io/dpdk/drivers/steering.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/udp/interfaces.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint16_t kReceiveSlots = 1024;
constexpr uint16_t kTransmitSlots = 1024;
constexpr Bytes kLargestMtu = 9000;
constexpr Bytes kLinkBytes = 14 + kVlanTagBytes;
// The buffer size for drivers with slots of their own (net_af_packet).
constexpr Bytes kSlot = 10240;
constexpr Bytes kLeastRoom = 2048;
constexpr uint64_t kMakesChecksums = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
constexpr uint64_t kChecksChecksums = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
// Buffers that a driver has: of packets received, before it returns any; of packets being sent.
constexpr uint32_t kHeldToReceive = 64;
constexpr uint32_t kHeldToSend = 1024;

std::string interface_name(uint32_t index) {
  std::array<char, IF_NAMESIZE> name{};
  if (index == 0) return {};
  return if_indextoname(index, name.data()) != nullptr ? name.data() : "";
}

// The devices in use by this process. With eal_mutex() held.
std::set<std::string>& devices_in_use() {
  static std::set<std::string> names;
  return names;
}

}  // namespace

void DpdkPort::Closer::operator()(rte_mempool* pool) const { rte_mempool_free(pool); }

Result<std::unique_ptr<DpdkPort>> DpdkPort::open(const DpdkPortConfig& config, const LogSink& log) {
  std::unique_ptr<DpdkPort> port(new DpdkPort);
  const std::lock_guard lock(eal_mutex());  // released before a port that failed is destroyed
  const WithoutPipeSignal quiet;
  RETURN_IF_ERROR(port->attach(config.device, log));
  RETURN_IF_ERROR(port->configure(config, log));
  return port;
}

DpdkPort::~DpdkPort() {
  const std::lock_guard lock(eal_mutex());
  close();
}

// With eal_mutex() held.
void DpdkPort::close() {
  if (name_.empty()) return;
  devices_in_use().erase(name_);
  run_on_interrupt_thread([&] {
    rte_eth_dev_info info{};
    const bool known = rte_eth_dev_info_get(info_.id, &info) == 0;
    rte_eth_dev_stop(info_.id);
    rte_eth_dev_close(info_.id);
    if (known) rte_dev_remove(info.device);
  });
  name_.clear();
}

Result<void> DpdkPort::attach(const DpdkDevice& device, const LogSink& log) {
  if (devices_in_use().contains(device.name)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the DPDK device '{}' is in use by this process: name it once, or give "
                            "a virtual device another number, such as {}1",
                            device.name, device.driver()));
  }
  if (rte_eth_dev_get_port_by_name(device.name.c_str(), &info_.id) != 0) {
    const EalOutput output(log);
    const int done = rte_dev_probe(with_defaults(device).c_str());
    if (done != 0 || rte_eth_dev_get_port_by_name(device.name.c_str(), &info_.id) != 0) {
      const std::string cause = output.from_driver(rte_strerror(done != 0 ? -done : ENODEV));
      // Some drivers return -1 for every error.
      if (done == -EACCES || (done == -1 && geteuid() != 0)) {
        return fail(ErrorCode::kPermission,
                    fmt::format("the DPDK device '{}' may not be used ({}): run as root, or give "
                                "this user CAP_NET_RAW, or the device's /dev/vfio group",
                                device.name, cause));
      }
      return fail(ErrorCode::kNotFound,
                  device.is_pci()
                      ? fmt::format("there is no DPDK device '{}' ({}): bind it to a driver that "
                                    "DPDK knows, such as vfio-pci, with 'dpdk-devbind.py', and "
                                    "install DPDK's own for it (librte-meta-net)",
                                    device.name, cause)
                      : fmt::format("the DPDK device '{}' cannot be made ({}): check its name and "
                                    "its arguments '{}', and that its driver is installed "
                                    "(librte-meta-net)",
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
  // Drivers that copy into their slots need few buffers at a time. A stack returns the newest ones,
  // which are still in the cache.
  const char* const order = info_.driver->has_slots ? "stack" : "ring_mp_mc";
  Pool pool(rte_pktmbuf_pool_create_by_ops(
      fmt::format("pacecar_{}_{}", purpose, number++).c_str(), buffers, 0, 0,
      static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + room), rte_eth_dev_socket_id(info_.id), order));
  if (pool) return pool;
  return fail(ErrorCode::kSystem,
              fmt::format("no memory for {} packet buffers of {} bytes for '{}' ({}): reserve huge "
                          "pages with 'echo 512 > /proc/sys/vm/nr_hugepages', or give more with "
                          "'-m MEGABYTES' in PACECAR_DPDK_EAL",
                          buffers, room, name_, rte_strerror(rte_errno)));
}

Result<void> DpdkPort::make_pools(const DpdkPortConfig& config) {
  const Bytes frame = std::max(info_.mtu + kLinkBytes + info_.driver->room_before,
                               info_.driver->has_slots ? kSlot : kLeastRoom);
  const uint32_t received = info_.receive_slots + config.receive_burst + kHeldToReceive;
  const uint32_t sent = config.transmit_buffers + (info_.copies_on_send ? 0 : kHeldToSend);
  ASSIGN_OR_RETURN(receive_pool_, make_pool("rx", received, frame));
  ASSIGN_OR_RETURN(transmit_pool_, make_pool("tx", sent, frame));
  return {};
}

// The error is an error number of DPDK.
tl::expected<Bytes, int> DpdkPort::choose_mtu(const DpdkDevice& device) const {
  if (info_.driver->has_slots) {
    const auto kernels = find_interface(info_.interface);
    const Bytes most = kernels ? std::min(kernels->mtu, kLargestMtu) : kLargestMtu;
    return std::min(device.mtu.value_or(most), most);
  }
  if (device.mtu) {
    const int done = rte_eth_dev_set_mtu(info_.id, static_cast<uint16_t>(*device.mtu));
    if (done != 0) return tl::unexpected(done);
  }
  uint16_t mtu = RTE_ETHER_MTU;
  rte_eth_dev_get_mtu(info_.id, &mtu);
  return mtu;
}

tl::unexpected<Error> DpdkPort::refuse(const char* what, int error, const EalOutput& output,
                                       const DpdkDevice& device) const {
  return fail(
      ErrorCode::kSystem,
      fmt::format("the DPDK device '{}' cannot be {} ({}): check that nothing else uses it, "
                  "and its arguments '{}'",
                  name_, what, output.last(rte_strerror(-error)), device.arguments));
}

Result<void> DpdkPort::make_queues(const DpdkPortConfig& config, const EalOutput& output) {
  uint16_t receive_slots = kReceiveSlots;
  uint16_t transmit_slots = kTransmitSlots;
  rte_eth_dev_adjust_nb_rx_tx_desc(info_.id, &receive_slots, &transmit_slots);
  info_.receive_slots = receive_slots;
  const auto socket = static_cast<unsigned>(rte_eth_dev_socket_id(info_.id));
  RETURN_IF_ERROR(make_pools(config));
  int done =
      rte_eth_rx_queue_setup(info_.id, 0, receive_slots, socket, nullptr, receive_pool_.get());
  if (done != 0) return refuse("given a receive queue", done, output, config.device);
  done = rte_eth_tx_queue_setup(info_.id, 0, transmit_slots, socket, nullptr);
  if (done != 0) return refuse("given a transmit queue", done, output, config.device);
  return {};
}

void DpdkPort::find_interface_of(const DpdkDevice& device, uint32_t index) {
  if (!info_.driver->kernel_is_peer) {
    info_.interface = interface_name(index);
  } else if (const auto shared = device.argument(info_.driver->shared)) {
    info_.interface = *shared;
  }
  const auto found = find_interface(info_.interface);
  if (!found) return;
  const bool ours = device.address && std::ranges::count(found->addresses, *device.address) > 0;
  info_.kernel_address = ours ? device.address : preferred_address(*found);
}

void DpdkPort::leave_others_to_kernel(const DpdkDevice& device, const LogSink& log) {
  // The kernel would not answer for another address, or on another network.
  const auto& kernels = info_.kernel_address;
  if (!kernels || device.address.value_or(*kernels) != *kernels || device.vlan) return;
  const auto isolated = isolate_device(info_.id);
  info_.steered = isolated.has_value();
  log(LogLevel::kTrace,
      info_.steered ? fmt::format("the DPDK device '{}' leaves other packets to the kernel", name_)
                    : fmt::format("the DPDK device '{}' gives us all packets, not only ours ({})",
                                  name_, isolated.error()));
}

Result<void> DpdkPort::steer(const Address& to) const {
  const auto steered = steer_datagrams(info_.id, to);
  if (steered) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("the DPDK device '{}' does not take a rule for the packets to {} ({}): "
                          "give it to DPDK alone, or use soft:udp:{}",
                          name_, to_string(to), steered.error(), info_.interface));
}

Result<void> DpdkPort::configure(const DpdkPortConfig& config, const LogSink& log) {
  const EalOutput output(log);
  rte_eth_dev_info info{};
  if (const int done = rte_eth_dev_info_get(info_.id, &info); done != 0) {
    return refuse("asked", done, output, config.device);
  }
  info_.driver = &dpdk_driver(info.driver_name != nullptr ? info.driver_name : "");
  info_.copies_on_send =
      info_.driver->copies_on_send && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
  find_interface_of(config.device, info.if_index);
  is_hardware_ = config.device.is_pci();

  info_.offloads_udp_checksums = config.udp_checksums &&
                                 (info.tx_offload_capa & kMakesChecksums) != 0 &&
                                 (info.rx_offload_capa & kChecksChecksums) != 0;
  log(LogLevel::kTrace,
      fmt::format("the DPDK device '{}' {} UDP checksums; payloads are {}", name_,
                  info_.offloads_udp_checksums ? "makes and checks" : "does not make",
                  info_.copies_on_send
                      ? "sent from the application's memory"
                      : "copied: it may still read a payload when the application has "
                        "its memory back"));

  rte_eth_conf conf{};
  conf.intr_conf.lsc =
      info_.driver->needs_link_interrupts && (*info.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
  if (info_.copies_on_send) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  if (info_.offloads_udp_checksums) {
    conf.txmode.offloads |= kMakesChecksums;
    conf.rxmode.offloads |= kChecksChecksums;
  }
  int done = rte_eth_dev_configure(info_.id, 1, 1, &conf);
  if (done != 0) return refuse("configured", done, output, config.device);
  const auto mtu = choose_mtu(config.device);
  if (!mtu) return refuse("set to that MTU", mtu.error(), output, config.device);
  info_.mtu = *mtu;
  RETURN_IF_ERROR(make_queues(config, output));
  leave_others_to_kernel(config.device, log);
  done = rte_eth_dev_start(info_.id);
  if (done != 0) return refuse("started", done, output, config.device);
  // Neighbours ask by multicast. Virtual devices without a filter receive it in any case.
  rte_eth_allmulticast_enable(info_.id);
  rte_ether_addr mac{};
  rte_eth_macaddr_get(info_.id, &mac);
  if (!rte_is_valid_assigned_ether_addr(&mac)) {
    rte_eth_random_addr(mac.addr_bytes);
    rte_eth_dev_default_mac_addr_set(info_.id, &mac);
  }
  std::copy_n(mac.addr_bytes, info_.mac.size(), info_.mac.begin());
  return {};
}

Rate DpdkPort::line_rate() const {
  rte_eth_link link{};
  if (!is_hardware_ || rte_eth_link_get_nowait(info_.id, &link) != 0) return Rate();
  if (link.link_speed == RTE_ETH_SPEED_NUM_NONE || link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN) {
    return Rate();
  }
  return Rate::from_bps(uint64_t{link.link_speed} * 1'000'000);
}

uint16_t DpdkPort::receive(std::span<rte_mbuf*> buffers) const {
  return rte_eth_rx_burst(info_.id, 0, buffers.data(), static_cast<uint16_t>(buffers.size()));
}

uint16_t DpdkPort::send(std::span<rte_mbuf*> buffers) const {
  return rte_eth_tx_burst(info_.id, 0, buffers.data(), static_cast<uint16_t>(buffers.size()));
}

bool DpdkPort::link_is_up() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(info_.id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace pacecar
