#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "bench/switch/frame_headers.h"
#include "bench/switch/frame_port.h"
#include "transport/base/invalid.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/io/dpdk/device.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/dpdk/module.h"
#include "transport/io/dpdk/port.h"
#include "transport/io/frame.h"

namespace pacecar {
namespace {

constexpr size_t kBurst = 64;
constexpr std::string_view kMemif = "net_memif";

class DpdkFrames final : public FramePort {
 public:
  explicit DpdkFrames(std::string name, std::unique_ptr<DpdkPort> port)
      : name_(std::move(name)), port_(std::move(port)) {}
  ~DpdkFrames() override { release(); }

  std::string_view name() const override { return name_; }
  Bytes frame_bytes() const override { return port_->info().mtu + kEthernetBytes + kVlanTagBytes; }
  size_t receive(std::span<ReceivedFrame> frames, Instant now) override {
    release();
    held_ = port_->receive(std::span(received_).first(std::min(frames.size(), kBurst)));
    size_t count = 0;
    for (rte_mbuf* buffer : std::span(received_).first(held_)) {
      if (buffer->pkt_len > frame_bytes() || rte_pktmbuf_linearize(buffer) != 0) {
        ++counters_.too_long;
        continue;
      }
      if (buffer->data_len < kEthernetBytes) continue;
      frames[count++] = {.bytes = {rte_pktmbuf_mtod(buffer, const uint8_t*), buffer->data_len},
                         .time = now};
      ++counters_.received_frames;
    }
    return count;
  }

  void send(std::span<const OutgoingFrame> frames) override {
    std::array<rte_mbuf*, kBurst> buffers{};
    size_t count = 0;
    for (const OutgoingFrame& frame : frames) {
      if (rte_mbuf* buffer = copy_of(frame); buffer != nullptr) {
        buffers[count++] = buffer;
      } else {
        ++counters_.refused;
      }
      if (count == kBurst) submit(std::span(buffers).first(std::exchange(count, 0)));
    }
    if (count > 0) submit(std::span(buffers).first(count));
  }

  int wait_fd() const override { return -1; }
  FramePortCounters counters() override {
    rte_eth_stats stats{};
    if (rte_eth_stats_get(port_->info().id, &stats) == 0) {
      counters_.missed = stats.imissed + stats.rx_nombuf;
    }
    return counters_;
  }

 private:
  void release() {
    if (held_ > 0) rte_pktmbuf_free_bulk(received_.data(), static_cast<unsigned>(held_));
    held_ = 0;
  }
  // nullptr where no buffer is left, or it is too small.
  rte_mbuf* copy_of(const OutgoingFrame& frame) {
    rte_mbuf* buffer = rte_pktmbuf_alloc(&port_->transmit_pool());
    if (buffer == nullptr) return nullptr;
    for (const std::span<const uint8_t> piece : {frame.head, frame.rest}) {
      if (piece.empty()) continue;
      auto* const to = rte_pktmbuf_append(buffer, static_cast<uint16_t>(piece.size()));
      if (to == nullptr) {
        rte_pktmbuf_free(buffer);
        return nullptr;
      }
      std::memcpy(to, piece.data(), piece.size());
    }
    return buffer;
  }

  void submit(std::span<rte_mbuf*> buffers) {
    const size_t sent = port_->send(buffers);
    counters_.refused += buffers.size() - sent;
    for (rte_mbuf* buffer : buffers.subspan(sent)) rte_pktmbuf_free(buffer);
  }

  std::string name_;
  std::unique_ptr<DpdkPort> port_;
  FramePortCounters counters_;
  size_t held_ = 0;  // of the newest burst, until the next receive()
  std::array<rte_mbuf*, kBurst> received_{};
};

}  // namespace

Result<std::unique_ptr<FramePort>> open_dpdk_frames(const std::string& device,
                                                    const std::string& arguments,
                                                    const LogSink& log) {
  ASSIGN_OR_RETURN(auto parsed, parse_dpdk_device(device, arguments));
  if (parsed.driver() == kMemif) {
    const auto role = parsed.argument("role");
    if (role.value_or("server") != "server") {
      return invalid(
          "--port dpdk:{}: a switch is net_memif's server: leave role= out, and give role=client "
          "to the host at the other end",
          device);
    }
    if (!role) parsed.arguments += parsed.arguments.empty() ? "role=server" : ",role=server";
  }

  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  RETURN_IF_ERROR(start_eal(params.dpdk_eal, parsed.is_pci(), log));
  ASSIGN_OR_RETURN(
      auto port,
      DpdkPort::open({.device = parsed, .transmit_buffers = 2 * kBurst, .receive_burst = kBurst},
                     log));
  rte_eth_promiscuous_enable(
      port->info().id);  // fails for net_memif, which receives all frames anyway
  return std::make_unique<DpdkFrames>("dpdk:" + device, std::move(port));
}

}  // namespace pacecar

PACECAR_DPDK_MODULE(pacecar::open_dpdk_frames);
