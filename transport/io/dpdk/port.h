// DpdkPort: a DPDK Ethernet device with one receive and one transmit queue, from attaching it to
// detaching it; one that is attached already is taken over. Thread rule: as PacketIo.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/io/dpdk/af_xdp.h"
#include "transport/io/dpdk/device_name.h"
#include "transport/io/dpdk/driver.h"
#include "transport/io/dpdk/frame.h"

struct rte_mbuf;
struct rte_mempool;

namespace pacecar {

class EalWords;

struct DpdkPortConfig {
  DpdkDevice device;
  uint32_t transmit_buffers = 0;  // that a burst needs at once
  uint32_t receive_burst = 0;     // packets that are held until the next receive
  bool udp_checksums = false;     // by the device, if it can
};

class DpdkPort {
 public:
  // Errors: kInvalidArgument, kNotFound, kPermission, kSystem; each names the device and the cure.
  static Result<std::unique_ptr<DpdkPort>> open(const DpdkPortConfig& config, const LogSink& log);
  DpdkPort(const DpdkPort&) = delete;
  DpdkPort& operator=(const DpdkPort&) = delete;
  ~DpdkPort();

  uint16_t id() const { return id_; }
  const MacAddress& mac() const { return mac_; }
  Bytes mtu() const { return mtu_; }  // of IP packets
  // The kernel's interface on the same device; empty: none.
  const std::string& interface() const { return interface_; }
  uint32_t receive_slots() const { return receive_slots_; }
  Rate line_rate() const;  // 0: not known, or no hardware
  bool link_is_up() const;
  // False while a client waits for its server: no burst call may be made.
  bool is_started() const { return started_; }
  // Some devices (net_memif as a client) must try repeatedly to connect while their link is down.
  // Interrupts a running attempt, which may crash the other end: memif_sockets.h.
  bool can_reconnect() const { return !server_socket_.empty(); }
  void reconnect();
  // Whether such a device, with its link down, is connecting.
  bool is_connecting() const;
  // Packets are copied before the burst call returns, and may have many segments.
  bool copies_on_send() const { return copies_on_send_; }
  // The device makes the UDP checksums of flagged packets, and reports those of received ones.
  bool offloads_udp_checksums() const { return offloads_udp_checksums_; }
  // Frames stay in the memory of this host.
  bool is_memory() const { return driver_->is_memory; }
  // The kernel receives nothing on the interface any more.
  bool takes_interface() const { return driver_->takes_interface; }
  // The kernel's address on that interface: ours, if it has ours.
  const std::optional<Address>& kernel_address() const { return kernel_address_; }
  // The device receives only our address and port; the rest, also ARP and neighbour discovery,
  // stays with the kernel.
  bool is_steered() const { return steered_; }
  // The address and port that a steered device receives.
  Result<void> steer(const Address& to) const;
  rte_mempool& transmit_pool() { return transmit_pool_ ? *transmit_pool_ : *receive_pool_; }

 private:
  struct Closer {
    void operator()(rte_mempool* pool) const;
  };
  using Pool = std::unique_ptr<rte_mempool, Closer>;

  DpdkPort() = default;
  void close();
  Result<void> attach(const DpdkDevice& device, const LogSink& log);
  Result<void> configure(const DpdkPortConfig& config, const LogSink& log);
  tl::expected<Bytes, int> choose_mtu(const DpdkDevice& device) const;
  tl::unexpected<Error> refuse(const char* what, int error, const EalWords& output,
                               const DpdkDevice& device) const;
  void find_interface_of(const DpdkDevice& device, uint32_t index);
  void leave_others_to_kernel(const DpdkDevice& device, const LogSink& log);
  Result<void> make_queues(const DpdkPortConfig& config, const EalWords& output);
  Result<void> make_pools(const DpdkPortConfig& config);
  Pool try_pool(const std::string& name, uint32_t buffers, Bytes bytes) const;
  Result<Pool> make_pool(const char* purpose, uint32_t buffers, Bytes room) const;

  std::string name_;
  const DpdkDriver* driver_ = &dpdk_driver({});
  uint16_t id_ = 0;
  MacAddress mac_{};
  Bytes mtu_ = 0;
  std::string interface_;
  std::optional<Address> kernel_address_;
  bool steered_ = false;
  uint32_t receive_slots_ = 0;
  bool started_ = false;
  std::string server_socket_;  // of a client of net_memif
  bool copies_on_send_ = false;
  bool offloads_udp_checksums_ = false;
  bool is_hardware_ = false;  // virtual devices report a made-up speed
  std::optional<XdpSockets> xdp_sockets_;
  Pool receive_pool_;
  Pool transmit_pool_;  // null: the receive pool
};

}  // namespace pacecar
