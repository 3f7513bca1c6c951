#include "transport/sim/fabric.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "transport/sim/fabric_impl.h"
#include "transport/sim/link_capture.h"

namespace pacecar {
namespace {


}  // namespace

uint64_t FabricCounters::all_dropped() const {
  return std::accumulate(dropped.begin(), dropped.end(), uint64_t{0});
}

Fabric::Fabric(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Fabric::~Fabric() = default;

Result<std::unique_ptr<Fabric>> Fabric::create(EventLoop& loop, const Topology& topology,
                                               const FabricConfig& config, uint64_t seed) {
  if (auto ok = check_fabric_config(config, topology); !ok) {
    return tl::unexpected<Error>(ok.error());
  }
  auto routing = make_routing(topology);
  if (!routing) return tl::unexpected<Error>(routing.error());
  return std::unique_ptr<Fabric>(
      new Fabric(std::make_unique<Impl>(loop, topology, config, std::move(*routing), seed)));
}

uint32_t Fabric::hosts() const { return impl_->hosts; }
uint32_t Fabric::processes() const { return impl_->topology.all_processes(); }
PacketIo& Fabric::port(uint32_t process) { return impl_->ports[process]; }
const Address& Fabric::address(uint32_t process) const {
  return impl_->ports[process].local_address();
}

bool Fabric::send_frame(uint32_t process, const FabricFrame& frame) {
  return impl_->ports[process].send_frame(frame);
}

void Fabric::set_listener(uint32_t process, EventSink& sink, uint32_t what) {
  impl_->ports[process].set_listener(sink, what);
}

size_t Fabric::links() const { return impl_->links.size(); }

LinkInfo Fabric::link_info(LinkId id) const {
  const FabricLink& link = impl_->links[id];
  return {.from = link.from, .to = link.to, .rate = link.clock.rate(), .delay = link.delay};
}

LinkStats Fabric::link_stats(LinkId id) const {
  const FabricLink& link = impl_->links[id];
  const Instant now = impl_->loop.now();
  LinkStats stats = link.stats;
  stats.queue_bytes = link.data_bytes(now);
  if (link.paused) stats.paused = stats.paused + (now - link.paused_since);
  return stats;
}

void Fabric::reset_queue_max() {
  for (FabricLink& link : impl_->links) {
    link.stats.queue_max_bytes = link.data_bytes(impl_->loop.now());
  }
}

void Fabric::count_arrivals(uint32_t source, uint32_t destination) {
  impl_->ports[destination].count_arrivals(source);
}

Bytes Fabric::arrived_bytes(uint32_t source, uint32_t destination) const {
  return impl_->ports[destination].arrived_bytes(source);
}

Bytes Fabric::switch_buffer_max() const {
  Bytes most = 0;
  for (const auto& node : impl_->switches) most = std::max(most, node.buffer.max_bytes());
  return most;
}

Bytes Fabric::switch_buffer(uint32_t index) const {
  return impl_->switches[index].buffer.held_bytes();
}

void Fabric::set_cable_up(uint32_t cable, bool up) { impl_->set_cable_up(cable, up); }

void Fabric::set_cable_rate(uint32_t cable, Rate rate) {
  impl_->links[2 * cable].clock.set_rate(rate);
  impl_->links[2 * cable + 1].clock.set_rate(rate);
}

void Fabric::set_cable_loss(uint32_t cable, double probability) {
  impl_->links[2 * cable].loss = impl_->links[2 * cable + 1].loss = probability;
}

void Fabric::set_faults(const SimFaults& faults) { impl_->faults.set(faults); }

Result<void> Fabric::capture(LinkId link, const std::string& path) {
  auto writer = PcapWriter::create(path);
  if (!writer) return tl::unexpected<Error>(writer.error());
  impl_->links[link].capture =
      std::make_unique<LinkCapture>(std::move(*writer), impl_->config, impl_->topology.processes);
  return {};
}

FabricCounters Fabric::counters() const {
  FabricCounters counters = impl_->counters;
  counters.in_flight = impl_->count_in_flight();
  return counters;
}

uint64_t Fabric::trace_hash() const { return impl_->trace_hash.value(); }

}  // namespace pacecar
