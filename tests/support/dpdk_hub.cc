#include "tests/support/dpdk_hub.h"

#include <fmt/format.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <time.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/eal.h"

namespace pacecar::test {
namespace {

constexpr unsigned kRingSlots = 1024;

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

rte_ring* make_ring(const std::string& name) {
  rte_ring* const ring = rte_ring_create(name.c_str(), kRingSlots, SOCKET_ID_ANY, 0);
  if (ring == nullptr) throw std::runtime_error("no memory for a ring");
  return ring;
}

}  // namespace

// Two connected devices, "NAMEa" and "NAMEb", which exist before they are opened.
void DpdkHub::make_ring_pair(const std::string& name) {
  rte_ring* up = make_ring(name + "u");
  rte_ring* down = make_ring(name + "d");
  if (rte_eth_from_rings((name + "a").c_str(), &down, 1, &up, 1, 0) < 0 ||
      rte_eth_from_rings((name + "b").c_str(), &up, 1, &down, 1, 0) < 0) {
    throw std::runtime_error("no ring devices");
  }
  rings_.insert(rings_.end(), {up, down});
}

DpdkHub::DpdkHub(DpdkLink link, size_t ends, const std::string& folder) {
  if (auto ok = start_eal("", false, {}); !ok) throw std::runtime_error(ok.error().message);
  static std::atomic<int> hubs{0};
  const int number = hubs++;
  for (size_t end = 0; end < ends; ++end) {
    const int id = number * 100 + static_cast<int>(end);
    DpdkDevice ours;
    DpdkDevice theirs;
    if (link == DpdkLink::kRing) {
      const std::string name = fmt::format("link{}", id);
      make_ring_pair(name);
      ours.name = "net_ring_" + name + "a";
      theirs.name = "net_ring_" + name + "b";
    } else {
      const std::string socket = fmt::format("{}/hub{}_{}.sock", folder, number, end);
      ours = {.name = fmt::format("net_vhost{}", id), .arguments = "iface=" + socket};
      theirs = {.name = fmt::format("net_virtio_user{}", id), .arguments = "path=" + socket};
    }
    ports_.push_back(value_of(
        DpdkPort::open({.device = ours, .transmit_buffers = 64, .receive_burst = 64}, {})));
    devices_.push_back(theirs);
  }
  received_.resize(ends);
}

DpdkHub::~DpdkHub() {
  ports_.clear();
  for (rte_ring* ring : rings_) rte_ring_free(ring);
}

// Forwards copies in the hub's memory: a receiver may hold a packet after its sender has ended.
void DpdkHub::turn() {
  std::array<rte_mbuf*, 32> burst{};
  for (size_t i = 0; i < ports_.size(); ++i) {
    const auto& from = ports_[i];
    const uint16_t count = from->receive(burst);
    if (count > 0) received_[i] = true;
    for (const auto& to : ports_) {
      if (to == from) continue;
      for (rte_mbuf* const packet : std::span(burst).first(count)) {
        rte_mbuf* copy = rte_pktmbuf_copy(packet, &to->transmit_pool(), 0, UINT32_MAX);
        if (copy != nullptr && to->send({&copy, 1}) == 0) rte_pktmbuf_free(copy);
      }
    }
    rte_pktmbuf_free_bulk(burst.data(), count);
  }
}

std::unique_ptr<PacketIo> open_end(const DpdkDevice& device) {
  return value_of(open_dpdk({.device = device}, {})).io;
}

Instant rested_now() {
  const timespec moment{0, 20'000};
  nanosleep(&moment, nullptr);
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

void let_links_come_up(const std::function<Instant()>& step,
                       std::span<const std::unique_ptr<PacketIo>> ends, const DpdkHub* hub) {
  std::array<RxPacket, 4> none;
  for (int steps = 0, up = 0; up < 500; ++steps) {
    if (steps == 200'000) throw std::runtime_error("the links do not come up");
    const Instant now = step();
    for (const auto& end : ends) end->receive(none, now);
    if (hub == nullptr || hub->has_received_from_all()) ++up;
  }
}

}  // namespace pacecar::test
