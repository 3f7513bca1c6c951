// DpdkPort: a DPDK Ethernet device with one receive and one transmit queue. open() attaches the
// device, or uses an attached one; the destructor detaches it. Thread rule: as PacketIo.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/io/dpdk/device.h"
#include "transport/io/dpdk/drivers/driver.h"
#include "transport/io/frame.h"

struct rte_mbuf;
struct rte_mempool;

namespace pacecar {

class EalOutput;

struct DpdkPortConfig {
  DpdkDevice device;
  uint32_t transmit_buffers = 0;  // buffers of one transmit burst
  // Packets of one receive burst; their buffers are in use until the next one.
  uint32_t receive_burst = 0;
  bool udp_checksums = false;  // the device makes and checks UDP checksums, if it can
};

struct DpdkPortInfo {
  uint16_t id = 0;
  const DpdkDriver* driver = &dpdk_driver({});
  MacAddress mac{};
  Bytes mtu = 0;          // of IP packets
  std::string interface;  // the kernel's interface of this device; empty: none
  uint32_t receive_slots = 0;
  // The driver copies packets before the burst call returns; packets may have many segments.
  bool copies_on_send = false;
  // The device writes the UDP checksums of flagged packets and checks them in received packets.
  bool offloads_udp_checksums = false;
  // The kernel's IP address on that interface; the configured one, if the interface has it.
  std::optional<Address> kernel_address;
  // Only packets to our address and port are steered to us; the kernel receives all others, also
  // ARP and neighbour discovery.
  bool steered = false;
};

class DpdkPort {
 public:
  // Errors: kInvalidArgument, kNotFound, kPermission, kSystem; each names the device and the cure.
  static Result<std::unique_ptr<DpdkPort>> open(const DpdkPortConfig& config, const LogSink& log);
  DpdkPort(const DpdkPort&) = delete;
  DpdkPort& operator=(const DpdkPort&) = delete;
  ~DpdkPort();

  const DpdkPortInfo& info() const { return info_; }
  Rate line_rate() const;  // 0: unknown, or a virtual device
  bool link_is_up() const;
  // Fill `buffers` with received packets, and send the packets in `buffers`; return how many.
  uint16_t receive(std::span<rte_mbuf*> buffers) const;
  uint16_t send(std::span<rte_mbuf*> buffers) const;
  // Sets the address and port whose packets a steered device receives.
  Result<void> steer(const Address& to) const;
  rte_mempool& transmit_pool() { return *transmit_pool_; }

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
  tl::unexpected<Error> refuse(const char* what, int error, const EalOutput& output,
                               const DpdkDevice& device) const;
  void find_interface_of(const DpdkDevice& device, uint32_t index);
  void leave_others_to_kernel(const DpdkDevice& device, const LogSink& log);
  Result<void> make_queues(const DpdkPortConfig& config, const EalOutput& output);
  Result<void> make_pools(const DpdkPortConfig& config);
  Result<Pool> make_pool(const char* purpose, uint32_t buffers, Bytes room) const;

  std::string name_;
  DpdkPortInfo info_;
  bool is_hardware_ = false;  // virtual devices report a made-up speed
  Pool receive_pool_;
  Pool transmit_pool_;
};

}  // namespace pacecar
