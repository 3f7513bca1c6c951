#include "transport/engine/cores/multi_core_nic.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
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

Result<FileDescriptor> wait_for_any(std::initializer_list<int> fds) {
  FileDescriptor all(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : fds) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (all && epoll_ctl(all.get(), EPOLL_CTL_ADD, fd, &event) == 0) continue;
    return fail(ErrorCode::kSystem,
                fmt::format("cannot wait for several sockets at once ({}): raise the limit of open "
                            "files (ulimit -n)",
                            std::strerror(errno)));
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<MultiCoreNic>> MultiCoreNic::make(
    std::vector<std::unique_ptr<SoftPort>> ports, const CoreThreadConfig& config,
    std::unique_ptr<Processors> processors) {
  PACECAR_CHECK(!ports.empty() && ports.size() <= FlowDivision::kMaxCores);
  ASSIGN_OR_RETURN(auto bell, Doorbell::make());
  const auto cores = static_cast<uint32_t>(ports.size());
  std::unique_ptr<MultiCoreNic> nic(
      new MultiCoreNic(std::move(ports.front()), cores, std::move(bell), std::move(processors)));
  ports.erase(ports.begin());
  RETURN_IF_ERROR(nic->start(std::move(ports), config));
  return nic;
}

MultiCoreNic::MultiCoreNic(std::unique_ptr<SoftPort> first, uint32_t cores,
                           std::unique_ptr<Doorbell> bell, std::unique_ptr<Processors> processors)
    : processors_(std::move(processors)),
      port_(std::move(first)),
      first_(port_->soft_nic()),
      caps_(caps_of(first_.caps(), cores)),
      bell_(std::move(bell)),
      queue_pairs_(caps_.queue_pairs),
      lanes_(cores - 1, std::vector<QueuePair*>(caps_.queue_pairs)),
      done_(caps_.queue_pairs),
      undivided_(caps_.flows) {}

Result<void> MultiCoreNic::start(std::vector<std::unique_ptr<SoftPort>> further,
                                 const CoreThreadConfig& config) {
  for (auto& port : further) {
    ASSIGN_OR_RETURN(auto core, Core::make(std::move(port), *bell_));
    further_.push_back(std::move(core));
  }
  if (config.clock == nullptr) return {};
  ASSIGN_OR_RETURN(wait_fd_, wait_for_any({port_->wait_fd(), bell_->fd()}));
  for (auto& core : further_) {
    threads_.push_back(start_core_thread(*core, config, processors_.get()));
  }
  return {};
}

MultiCoreNic::~MultiCoreNic() = default;

// --- set-up ---

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
  auto qp = std::make_unique<QueuePair>(config);
  qp->id = *id;
  qp->lanes.push_back({*id, FixedQueue<uint32_t>(config.work_requests)});
  for (uint32_t i = 1; i < cores(); ++i) {
    const QueuePairId lane =
        core(i).exclusively([&](SoftNic& nic) { return nic.create_queue_pair(config).value(); });
    qp->lanes.push_back({lane, FixedQueue<uint32_t>(config.work_requests)});
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
  // The first lane's endpoint, which peers with one core use, and those of the other lanes.
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
  Flow& flow = this->flow(qp->flow);
  for (; !qp->posted.empty(); qp->posted.pop_front()) {
    const Posted& posted = qp->posted.front();
    if (!posted.done) flow.division.on_done(posted.core, posted.bytes);
  }
  while (qp->lanes.size() > 1) drop_lane(*qp);
  if (--flow.queue_pairs == 0) {
    for (auto& core : further_) core->forget(qp->flow);
    flow = Flow(cores(), qp->flow);  // the next flow with its number starts fresh
  } else {
    undivided_.add(qp->flow);
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
