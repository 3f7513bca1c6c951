// Making a NIC, its memory and its queue pairs.
#include "transport/verbs/verbs_nic.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <utility>

#include "gdr/gpu_memory.h"
#include "transport/base/check.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// Writes with immediate that may arrive between two polls; more wait at their senders.
constexpr uint32_t kSharedReceives = 4096;
// The completion queue (locked memory) holds at least this many queue pairs; others are refused.
constexpr uint32_t kBusyQueuePairs = 1024;
// Overhead of a packet on the link: Ethernet with preamble and gap (38), IP, UDP (8), BTH (12) and
// ICRC (4); or the headers of InfiniBand (LRH 8, BTH 12, ICRC 4, VCRC 2).
constexpr Bytes kRoceOverhead = 38 + 8 + 12 + 4;
constexpr Bytes kInfinibandOverhead = 26;
constexpr Bytes kIpv4Header = 20;
constexpr Bytes kIpv6Header = 40;
// How long the device may take to be done with deregistered memory. On a busy host this thread may
// not run for that time, so it polls at least this often before it gives up. When it lets others
// run, they run for tens of milliseconds: with more turns the device's retries would end first.
constexpr auto kDrainLimit = std::chrono::milliseconds(50);
constexpr int kDrainPolls = 10'000;
constexpr int kDrainTurn = 500;  // polls before others may run
constexpr std::string_view kStartAgain = "look at the kernel's log (dmesg), and start again";

}  // namespace

Result<std::unique_ptr<VerbsNic>> VerbsNic::open(const VerbsConfig& config, Instant now) {
  ASSIGN_OR_RETURN(auto device,
                   VerbsDevice::open(config.device, config.port, config.gid_index, config.log));
  if (config.pkey_index >= device.port_attributes.pkey_tbl_len) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("PACECAR_PKEY is {}, but the P_Key table of {} port {} has {} entries: "
                            "give one of them, counted from 0",
                            config.pkey_index, config.device, config.port,
                            device.port_attributes.pkey_tbl_len));
  }
  DomainHandle domain(ibv_alloc_pd(device.context.get()));
  if (domain == nullptr) return verbs_failed("ibv_alloc_pd", errno, config.device);
  ASSIGN_OR_RETURN(auto completions,
                   CompletionQueue::create(device, domain.get(), kSharedReceives,
                                           std::min(config.queue_pairs, kBusyQueuePairs) *
                                               VerbsQueuePair::kMaxCompletions,
                                           config.without_stamps));
  auto nic = std::unique_ptr<VerbsNic>(
      new VerbsNic(config, std::move(device), std::move(domain), std::move(completions), now));
  RETURN_IF_ERROR(nic->set_up_waiting());
  return nic;
}

VerbsNic::VerbsNic(const VerbsConfig& config, VerbsDevice device, DomainHandle domain,
                   CompletionQueue completions, Instant now)
    : PacedNic(make_caps(config, device, domain.get(), completions), config.address,
               std::bit_ceil(config.queue_pairs), 2 * kSharedReceives, random_word(), now),
      config_(config),
      device_(std::move(device)),
      domain_(std::move(domain)),
      registrations_(domain_.get(), config.regions, config.device),
      completions_(std::move(completions)),
      hardware_counters_(HardwareCounters::folder_of(config.device, config.port)),
      recovering_(queue_pairs_.size()),
      most_started_(static_cast<uint32_t>(std::max(device_.attributes.max_qp_wr - 1, 1))),
      next_event_poll_(now),
      next_recovery_(now),
      next_watch_(now),
      path_ready_at_(now) {
  PACECAR_CHECK(queue_pairs_.size() <= (1U << 16) && config.paths > 0);
}

NicCaps VerbsNic::make_caps(const VerbsConfig& config, const VerbsDevice& device, ibv_pd* domain,
                            const CompletionQueue& completions) {
  const bool ethernet = device.link_layer == LinkLayer::kEthernet;
  const Bytes wanted = config.chunk != 0 ? config.chunk : kDefaultChunk;
  const Bytes chunk = std::clamp<Bytes>(wanted, device.mtu, device.port_attributes.max_msg_sz);
  return {.line_rate = choose_line_rate(config.line_rate, port_rate(device.port_attributes)),
          .mtu = device.mtu,
          .packet_overhead =
              ethernet
                  ? kRoceOverhead + (is_ipv4({.ip = device.gid.gid}) ? kIpv4Header : kIpv6Header)
                  : kInfinibandOverhead,
          .burst_bytes = chunk,
          .jitter = device.hardware ? kPollJitter : kSoftwareJitter,
          .pause = kSchedulerPause,
          .paths = std::min<uint32_t>(config.paths, RcEndpoint::kMaxLanes),
          .flows = config.flows,
          .queue_pairs = std::bit_ceil(config.queue_pairs),
          .regions = config.regions,
          .write_bytes = chunk,
          .paces_packets = false,
          .dma_buf = takes_dmabuf(domain),
          .peer_memory = device.hardware && peer_memory_module().has_value(),
          .registers_beside = true,
          .silent_writes_wake = false,
          .networks = {ethernet ? kRoceNetwork : kInfinibandNetwork},
          .offloads = completions.offloads()};
}

// wait_fd() becomes readable for completions, and for events of the device.
Result<void> VerbsNic::set_up_waiting() {
  wait_fd_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!wait_fd_) return verbs_failed("epoll_create1", errno, device_.name);
  for (const int fd : {completions_.wait_fd(), device_.context->async_fd}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        epoll_ctl(wait_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return verbs_failed("epoll_ctl", errno, device_.name);
    }
  }
  return {};
}

Result<std::optional<uint64_t>> VerbsNic::start_flush(const MemoryRegion& region,
                                                      const uint8_t* data) {
  if (flushes_ == nullptr || flushes_->failed()) {
    ASSIGN_OR_RETURN(flushes_,
                     FlushPair::create(device_, lane_config({}), flushes_ ? flushes_->next() : 0));
  }
  return flushes_->start(region, data);
}

Result<bool> VerbsNic::flushed(uint64_t flush) {
  if (flushes_ == nullptr) return fail(ErrorCode::kInternal, "there is no such flush");
  return flushes_->done(flush);
}

std::shared_ptr<void> VerbsNic::deregister_memory(const MemoryRegion& region) {
  if (flushes_ != nullptr) flushes_->finish();
  if (!registrations_.last(region.key)) return registrations_.remove(region.key);
  for (const auto& qp : queue_pairs_) {
    if (qp == nullptr) continue;
    qp->work.revoke(region.key);
    completed_.add(slot_of(qp->id));
  }
  if (!wait_until_unused(region.key)) {
    for (const auto& qp : queue_pairs_) {
      if (qp != nullptr && qp->work.in_use(region.key)) stop_using(*qp, region.key);
    }
  }
  return registrations_.remove(region.key);
}

void VerbsNic::stop_using(QueuePair& qp, uint32_t key) {
  const std::string fault =
      describe_fault(place_of(qp), "memory was deregistered while the NIC used it",
                     "keep memory registered until its requests are done");
  for (Lane& lane : qp.lanes) {
    if (!qp.recovers() || !lane.up() || lane.ledger.empty()) continue;
    fail_lane(qp, lane, CompletionStatus::kMemoryGone, fault);
  }
  if (wait_until_unused(key)) return;  // everything has completed
  break_queue_pair(qp, CompletionStatus::kMemoryGone, fault);
  if (!wait_until_unused(key)) drop_lanes(qp);
}

bool VerbsNic::wait_until_unused(uint32_t key) {
  const auto in_use = [&] {
    return std::ranges::any_of(
        queue_pairs_, [&](const auto& qp) { return qp != nullptr && qp->work.in_use(key); });
  };
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Instant begin_now = now_;
  for (int polls = 0; in_use(); ++polls) {
    const auto waited = Clock::now() - begin;
    if (waited > kDrainLimit && polls >= kDrainPolls) return false;
    receive(begin_now + Duration::from_ns(std::chrono::nanoseconds(waited).count()));
    if (polls % kDrainTurn == 0) sched_yield();
  }
  return true;
}

VerbsNic::LaneRef VerbsNic::find_lane(uint32_t number) const {
  const auto found = by_lane_.find(number);
  return found == by_lane_.end() ? LaneRef() : found->second;
}

LaneConfig VerbsNic::lane_config(const QueuePairConfig& config) const {
  const bool control = config.traffic_class == TrafficClass::kControl;
  return {.domain = domain_.get(),
          .completions = completions_.queue(),
          .shared_receives = completions_.shared_receives(),
          .work_requests = std::min(QueuePair::max_started(config), most_started_),
          .traffic_class =
              static_cast<uint8_t>(control ? config_.control_traffic_class : config_.traffic_class),
          .pkey_index = static_cast<uint16_t>(config_.pkey_index),
          .service_level = static_cast<uint8_t>(config_.service_level),
          .ack_timeout = choose_ack_timeout(std::min(config_.silence_limit, kLongestRetries))};
}

// Control writes must be placed in the order of posting.
uint32_t VerbsNic::lanes_of(const QueuePairConfig& config) const {
  return config.paced ? caps_.paths : 1;
}

Result<QueuePairId> VerbsNic::create_queue_pair(const QueuePairConfig& config) {
  PACECAR_CHECK(config.flow < flows_.size() && config.receives == 0);
  if (device_failed_) return fail(ErrorCode::kSystem, device_fault_);
  ASSIGN_OR_RETURN(const QueuePairId id, next_id());
  if (!completions_.reserve(QueuePair::max_completions(config))) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} has no room for the completions of another queue pair: close "
                            "connections, or use more NICs",
                            device_.name));
  }
  auto qp = std::make_unique<QueuePair>(id, config);
  qp->lane_config = lane_config(config);
  if (auto made = make_lanes(*qp); !made) {
    completions_.give_back(QueuePair::max_completions(config));
    return tl::unexpected(made.error());
  }
  index_lanes(*qp);
  add(std::move(qp));
  return id;
}

Result<void> VerbsNic::make_lanes(QueuePair& qp) {
  const uint32_t label = random_word();
  for (uint32_t i = 0; i < lanes_of(qp.config); ++i) {
    ASSIGN_OR_RETURN(auto lane, make_lane(device_, qp.lane_config, path_label(label, i)));
    qp.lanes.push_back(std::move(lane));
  }
  LaneConfig standby_config = qp.lane_config;
  standby_config.ack_timeout = choose_ack_timeout(config_.silence_limit);
  ASSIGN_OR_RETURN(auto standby, StandbyLane::create(device_, standby_config, qp.id,
                                                     path_label(label, RcEndpoint::kMaxLanes)));
  qp.standby = std::move(standby);
  return {};
}

void VerbsNic::index_lanes(QueuePair& qp) {
  for (size_t i = 0; i < qp.lanes.size(); ++i) {
    by_lane_[qp.lanes[i].local.queue_pair] = {&qp, static_cast<uint8_t>(i)};
  }
  by_lane_[qp.standby->end().queue_pair] = {&qp, StandbyLane::kLaneNumber};
}

QueuePairAddress VerbsNic::queue_pair_address(QueuePairId id) const {
  const QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  RcEndpoint endpoint = endpoint_of(device_);
  endpoint.lanes = static_cast<uint8_t>(qp->lanes.size());
  for (size_t i = 0; i < qp->lanes.size(); ++i) endpoint.lane[i] = qp->lanes[i].local;
  announce_standby(qp->standby->end(), endpoint);
  return encode(endpoint);
}

Result<void> VerbsNic::connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && !qp->connected());
  if (qp->state == QueuePair::State::kBroken) return fail(ErrorCode::kSystem, qp->fault);
  ASSIGN_OR_RETURN(const auto endpoint, decode_rc_endpoint(remote));
  if (endpoint.link_layer != device_.link_layer) {
    return fail(ErrorCode::kPeer,
                fmt::format("{} and the peer's NIC are of different networks (Ethernet and "
                            "InfiniBand): choose NICs of the same network with PACECAR_NICS",
                            device_.name));
  }
  const size_t lanes = std::min<size_t>(qp->lanes.size(), endpoint.lanes);
  for (size_t i = 0; i < lanes; ++i) {
    RETURN_IF_ERROR(
        connect_lane(device_, qp->lane_config, qp->lanes[i], endpoint, endpoint.lane[i]));
  }
  const auto standby = announced_standby(endpoint);
  if (standby.has_value()) {
    RETURN_IF_ERROR(qp->standby->connect(device_, endpoint, *standby));
  }
  qp->remote = endpoint;
  qp->peer = device_.link_layer == LinkLayer::kEthernet ? gid_text(endpoint.gid)
                                                        : fmt::format("LID {}", endpoint.lid);
  qp->lanes_used = lanes;
  qp->state = QueuePair::State::kConnected;
  return {};
}

QueuePairMemory VerbsNic::queue_pair_memory(const QueuePairConfig& config) const {
  const Bytes started = QueuePair::max_started(config);
  const Bytes lane =
      sizeof(Lane) + started * (kDeviceWorkRequestBytes + 2 * sizeof(LaneLedger::Entry));
  const Bytes waiting = config.work_requests * sizeof(WorkRequest);
  return {.state = sizeof(QueuePair) + waiting + lanes_of(config) * lane + StandbyLane::memory(),
          .queues = 0};
}

void VerbsNic::halt_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  for (const Lane& lane : qp->lanes) stop_lane(lane);
  drain(now_);
}

void VerbsNic::destroy_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp == nullptr) return;
  const uint32_t slot = slot_of(id);
  drop_lanes(*qp);
  leave(*qp);
  recovering_.remove(slot);
  const uint32_t reserved = QueuePair::max_completions(qp->config);
  erase(slot);
  // Polls its last completions, so that no later queue pair with the same number gets them.
  drain(now_);
  completions_.refill_receives();
  completions_.give_back(reserved);
}

void VerbsNic::drop_lanes(QueuePair& qp) {
  for (Lane& lane : qp.lanes) {
    by_lane_.erase(lane.local.queue_pair);
    lane.queue_pair.reset();
    on_results_lost(qp, lane);
    lane.account.abandon(qp.work);
  }
  qp.lanes.clear();
  if (qp.standby == nullptr) return;
  by_lane_.erase(qp.standby->end().queue_pair);
  qp.standby.reset();
}

void VerbsNic::on_results_lost(QueuePair& qp, Lane& lane) {
  if (qp.config.paced) flows_.on_done(qp.config.flow, lane.ledger.in_flight());
  for (; !lane.ledger.empty(); --qp.started, --started_) {
    const LaneLedger::Entry entry = lane.ledger.take();
    qp.work.lose(entry.number);
    lane.account.on_lost(entry);
  }
}

FaultPlace VerbsNic::place_of(const QueuePair& qp) const {
  return {.device = device_.name, .port = device_.port, .peer = qp.peer};
}

void VerbsNic::break_queue_pair(QueuePair& qp, CompletionStatus status, std::string fault) {
  if (qp.state == QueuePair::State::kBroken) return;
  qp.state = QueuePair::State::kBroken;
  qp.broken_by = status;
  qp.fault = std::move(fault);
  for (Lane& lane : qp.lanes) {
    stop_lane(lane);
    lane.account.abandon(qp.work);
  }
  qp.standby->stop();
  recovering_.remove(slot_of(qp.id));
  completed_.add(slot_of(qp.id));
}

void VerbsNic::on_device_failed(std::string_view what) {
  device_failed_ = true;
  device_fault_ = describe_fault({.device = device_.name, .port = device_.port}, what, kStartAgain);
  for (const auto& qp : queue_pairs_) {
    if (qp == nullptr) continue;
    break_queue_pair(*qp, CompletionStatus::kLocalError,
                     describe_fault(place_of(*qp), what, kStartAgain));
  }
}

}  // namespace pacecar
