#include "transport/engine/cores/multi_core_nic.h"

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/softnic/endpoint.h"

namespace pacecar {
namespace {

// Bytes of a write, which is sent by one core. Large messages are so divided among several cores,
// and each write is large enough for its acknowledgement to cost little.
constexpr Bytes kWriteBytes = 256 * 1024;

NicCaps caps_of(const NicCaps& first, uint32_t cores) {
  NicCaps caps = first;
  caps.write_bytes = std::max<Bytes>(kWriteBytes / caps.burst_bytes, 1) * caps.burst_bytes;
  caps.receive_bytes *= cores;
  caps.cores = cores;
  return caps;
}

}  // namespace

MultiCoreNic::MultiCoreNic(SoftNic& first, std::span<const std::unique_ptr<Core>> further)
    : first_(first),
      further_(further),
      caps_(caps_of(first.caps(), cores())),
      queue_pairs_(caps_.queue_pairs),
      lanes_(further.size(), std::vector<QueuePair*>(caps_.queue_pairs)),
      done_(caps_.queue_pairs),
      undivided_(caps_.flows) {
  PACECAR_CHECK(cores() <= FlowDivision::kMaxCores);
}

Result<MemoryRegion> MultiCoreNic::register_memory(void* address, size_t length, Access access) {
  const auto region = first_.register_memory(address, length, access);
  if (!region) return region;
  for (auto& core : further_) {
    core->exclusively([&](SoftNic& nic) { nic.adopt_memory(*region, access); });
  }
  return region;
}

std::shared_ptr<void> MultiCoreNic::deregister_memory(const MemoryRegion& region) {
  first_.deregister_memory(region);
  for (auto& core : further_) {
    core->exclusively([&](SoftNic& nic) { nic.deregister_memory(region); });
  }
  return nullptr;
}

Result<QueuePairId> MultiCoreNic::create_queue_pair(const QueuePairConfig& config) {
  const auto id = first_.create_queue_pair(config);
  if (!id || !config.paced) return id;
  auto qp = std::make_unique<QueuePair>(*id, config);
  qp->lanes.push_back({*id, FixedQueue<uint64_t>(config.work_requests)});
  for (uint32_t i = 1; i < cores(); ++i) {
    const QueuePairId lane =
        core(i).exclusively([&](SoftNic& nic) { return nic.create_queue_pair(config).value(); });
    qp->lanes.push_back({lane, FixedQueue<uint64_t>(config.work_requests)});
    lanes_[i - 1][core(i).slot_of(lane)] = qp.get();
  }
  ++flow(config.flow).queue_pairs;
  queue_pairs_[first_.slot_of(*id)] = std::move(qp);
  return id;
}

QueuePairAddress MultiCoreNic::queue_pair_address(QueuePairId id) const {
  const QueuePairAddress address = first_.queue_pair_address(id);
  const QueuePair* qp = find(id);
  if (qp == nullptr) return address;
  std::vector<SoftEndpoint> further;
  for (uint32_t i = 1; i < qp->lanes.size(); ++i) {
    const auto lane = further_[i - 1]->exclusively(
        [&](SoftNic& nic) { return nic.queue_pair_address(qp->lanes[i].id); });
    further.push_back(*decode_endpoint(lane.view())->extended);
  }
  return encode(*decode_endpoint(address.view())->extended, true, {}, further);
}

Result<void> MultiCoreNic::connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) {
  auto connected = first_.connect_queue_pair(id, remote);
  QueuePair* qp = find(id);
  if (!connected || qp == nullptr) return connected;
  // The first lane's endpoint, which peers with one core use, and the endpoints of the other lanes.
  const PeerEndpoint peer = decode_endpoint(remote).value();
  qp->work_requests = std::min(qp->work_requests, peer.extended->writes);
  while (qp->lanes.size() > peer.further.size() + 1) drop_lane(*qp);
  for (uint32_t i = 1; i < qp->lanes.size(); ++i) {
    const QueuePairAddress lane = encode(peer.further[i - 1], true, {});
    connected = core(i).exclusively(
        [&](SoftNic& nic) { return nic.connect_queue_pair(qp->lanes[i].id, lane.view()); });
    if (!connected) return connected;
  }
  return connected;
}

void MultiCoreNic::drop_lane(QueuePair& qp) {
  const auto index = static_cast<uint32_t>(qp.lanes.size() - 1);
  const QueuePairId lane = qp.lanes[index].id;
  core(index).exclusively([&](SoftNic& nic) { nic.destroy_queue_pair(lane); });
  lanes_[index - 1][core(index).slot_of(lane)] = nullptr;
  qp.lanes.pop_back();
}

QueuePairMemory MultiCoreNic::queue_pair_memory(const QueuePairConfig& config) const {
  const QueuePairMemory one = first_.queue_pair_memory(config);
  const Bytes lanes = config.paced ? cores() : 1;
  return {one.state * lanes, one.queues * lanes};
}

std::string MultiCoreNic::fault(QueuePairId id) const {
  const QueuePair* qp = find(id);
  if (qp == nullptr || qp->broken_lane == 0) return first_.fault(id);
  return further_[qp->broken_lane - 1]->exclusively(
      [&](SoftNic& nic) { return nic.fault(qp->lanes[qp->broken_lane].id); });
}

// The first core makes no turn during this call.
void MultiCoreNic::halt_queue_pair(QueuePairId id) {
  const QueuePair* qp = find(id);
  first_.halt_queue_pair(id);
  for (uint32_t i = 1; qp != nullptr && i < qp->lanes.size(); ++i) core(i).halt(qp->lanes[i].id);
}

void MultiCoreNic::destroy_queue_pair(QueuePairId id) {
  first_.destroy_queue_pair(id);
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  const FlowId id_of_flow = qp->config.flow;
  Flow& flow = this->flow(id_of_flow);
  for (uint32_t i = 0; i < qp->lanes.size(); ++i) {
    for (auto& writes = qp->lanes[i].writes; !writes.empty(); writes.pop_front()) {
      flow.division.on_done(i, qp->work.request(writes.front()).length);
    }
  }
  while (qp->lanes.size() > 1) drop_lane(*qp);
  if (--flow.queue_pairs == 0) {
    for (auto& core : further_) core->forget(id_of_flow);
    flow = Flow(cores(), id_of_flow);  // the next flow with its number starts fresh
  } else {
    undivided_.add(id_of_flow);
  }
  done_.remove(first_.slot_of(id));
  queue_pairs_[first_.slot_of(id)].reset();
}

MultiCoreNic::QueuePair* MultiCoreNic::find(QueuePairId id) const {
  QueuePair* qp = queue_pairs_[first_.slot_of(id)].get();
  return qp != nullptr && qp->id == id ? qp : nullptr;
}

MultiCoreNic::QueuePair* MultiCoreNic::find(uint32_t index, QueuePairId lane) const {
  QueuePair* qp = lanes_[index - 1][further_[index - 1]->slot_of(lane)];
  return qp != nullptr && qp->lanes[index].id == lane ? qp : nullptr;
}

MultiCoreNic::Flow& MultiCoreNic::flow(FlowId id) {
  while (flows_.size() <= id) flows_.emplace_back(cores(), static_cast<FlowId>(flows_.size()));
  return flows_[id];
}

}  // namespace pacecar
