#include "tests/support/hostile_verbs/device.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "tests/support/hostile_verbs/world.h"

namespace pacecar::hostile {
namespace {

constexpr uint32_t kQueuePairBits = 12;  // of a number, below the bits of the context
constexpr uint32_t kFirstQueuePair = 2;  // 0 and 1 are special
constexpr std::chrono::microseconds kTick{20};

void notify(CompletionQueue& queue) {
  auto& events = reinterpret_cast<CompletionChannel*>(queue.verbs.channel)->events;
  events.events.push_back(&queue.verbs);
  count_event(events.fd);
}

}  // namespace

Device::Device(ibv_device* device, uint16_t number)
    : behavior_(World::instance().behavior),
      prng_(behavior_.seed ^ number),
      number_(number),
      wire_(std::make_unique<Wire>(World::instance().name, number, !behavior_.threaded)) {
  set_up_operations(verbs_, *this, device);
  verbs_.context.async_fd = events_.fd();
  World& world = World::instance();
  const std::lock_guard lock(world.mutex);
  world.open.push_back(this);
  if (behavior_.threaded) thread_ = std::thread([this] { run(); });
}

Device::~Device() {
  World& world = World::instance();
  {
    const std::lock_guard lock(world.mutex);
    std::erase(world.open, this);
  }
  ends_ = true;
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(world.mutex);
  world.left_over += rest();
}

std::string Device::rest() const {
  std::string all;
  const auto add = [&](size_t count, const char* what) {
    if (count > 0)
      all += std::to_string(count) + " " + what + " of hostile" + std::to_string(number_) + ", ";
  };
  add(queue_pairs_.size(), "queue pairs");
  add(completion_queues_.size(), "completion queues");
  add(shared_receives.size(), "shared receive queues");
  add(channels.size(), "completion channels");
  add(regions_.size(), "regions");
  add(domains.size(), "protection domains");
  return all;
}

void Device::run() {
  while (!ends_) {
    tick();
    bool idle = false;
    {
      const std::lock_guard lock(lock_);
      idle = idle_;
    }
    if (!idle) {
      std::this_thread::sleep_for(kTick);
      continue;
    }
    pollfd arrival{wire_->fd(), POLLIN, 0};
    ::poll(&arrival, 1, 1);
  }
}

void Device::tick() {
  const std::lock_guard lock(lock_);
  ++ticks_;
  if (death_) return;
  raise_idle_event();
  wire_->flush();
  while (const auto packet = wire_->receive()) {
    const auto queue_pair = queue_pairs_.find(packet->header.queue_pair);
    if (queue_pair != queue_pairs_.end()) queue_pair->second->take(*packet);
  }
  idle_ = !wire_->backlogged();
  for (const auto& [number, queue_pair] : queue_pairs_) idle_ = !queue_pair->advance() && idle_;
  for (const auto& queue : completion_queues_) {
    if (queue->advance(ticks_)) notify(*queue);
    idle_ = idle_ && queue->idle();
  }
}

int64_t Device::now_ns() const {
  return behavior_.threaded ? std::chrono::steady_clock::now().time_since_epoch().count()
                            : hostile::now_ns();
}

void Device::set_link(bool up) {
  const std::lock_guard lock(lock_);
  wire_->up = up;
  events_.push(
      {.element = {.port_num = 1}, .event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR});
}

int Device::call() {
  const auto fatal = World::instance().on_call(number_);
  if (fatal && !death_) end(*fatal);
  return death_ ? death_->error : 0;
}

void Device::die(const Death& how) {
  const std::lock_guard lock(lock_);
  if (!death_) end(how);
}

void Device::end(const Death& how) {
  if (how.polls == Death::Polls::kFlushed) {
    for (const auto& [number, queue_pair] : queue_pairs_) queue_pair->fail();
    for (const auto& queue : completion_queues_) {
      if (queue->advance(UINT64_MAX)) notify(*queue);
    }
  }
  death_ = how;
  wire_->up = false;
  if (how.raises_event)
    events_.push({.element = {.port_num = 1}, .event_type = IBV_EVENT_DEVICE_FATAL});
}

// --- events ---

void Device::raise(ibv_event_type type, ibv_qp* queue_pair) {
  events_.push({.element = {.qp = queue_pair}, .event_type = type});
}

void Device::raise(ibv_event_type type) {
  const std::lock_guard lock(lock_);
  ibv_async_event event{.element = {.port_num = 1}, .event_type = type};
  switch (subject_kind(type)) {
    case SubjectKind::kCompletions:
      if (completion_queues_.empty()) return;
      event.element.cq = &completion_queues_.front()->verbs;
      break;
    case SubjectKind::kReceives:
      if (shared_receives.empty()) return;
      event.element.srq = &(*shared_receives.begin())->verbs;
      break;
    case SubjectKind::kQueuePair: {
      QueuePair* const lane = any_lane();
      if (lane == nullptr) return;
      const bool fatal = type <= IBV_EVENT_QP_ACCESS_ERR;
      if (fatal) lane->fail();
      event.element.qp = &lane->verbs;
      break;
    }
    case SubjectKind::kDevice: break;
  }
  events_.push(event);
}

QueuePair* Device::any_lane() {
  std::vector<QueuePair*> lanes;
  for (const auto& [number, queue_pair] : queue_pairs_) {
    if (queue_pair->verbs.srq != nullptr) lanes.push_back(queue_pair.get());
  }
  return lanes.empty() ? nullptr : lanes[prng_.below(lanes.size())];
}

void Device::raise_idle_event() {
  if (behavior_.idle_events == 0 || prng_.below(behavior_.idle_events) > 0) return;
  constexpr std::array kIdleEvents{IBV_EVENT_GID_CHANGE,  IBV_EVENT_LID_CHANGE,
                                   IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
                                   IBV_EVENT_PORT_ACTIVE, IBV_EVENT_CLIENT_REREGISTER,
                                   IBV_EVENT_PORT_ERR,    IBV_EVENT_COMM_EST};
  const ibv_event_type type = kIdleEvents[prng_.below(kIdleEvents.size())];
  if (type == IBV_EVENT_COMM_EST) {
    if (!queue_pairs_.empty()) raise(type, &queue_pairs_.begin()->second->verbs);
    return;
  }
  const int port = type == IBV_EVENT_PORT_ERR ? 2 : 1;  // 2: a port that is not used
  events_.push({.element = {.port_num = port}, .event_type = type});
}

ibv_cq* Device::take_completion_event(CompletionChannel& channel) {
  if (channel.events.events.empty()) return nullptr;
  ibv_cq* const queue = channel.events.events.front();
  channel.events.events.pop_front();
  return queue;
}

void Device::complete(ibv_cq* queue, const ibv_wc& completion, bool solicited, uint64_t send) {
  auto& into = *reinterpret_cast<CompletionQueue*>(queue);
  const uint64_t stamp = time_stamp(behavior_, now_ns(), prng_);
  if (into.add(completion, solicited, send, ticks_, stamp)) return;
  events_.push({.element = {.cq = queue}, .event_type = IBV_EVENT_CQ_ERR});
}

size_t Device::poll(ibv_cq* queue, size_t most, ibv_wc* completions) {
  return reinterpret_cast<CompletionQueue*>(queue)->poll(
      most, completions, [this](uint32_t number, uint64_t send) {
        const auto found = queue_pairs_.find(number);
        if (found != queue_pairs_.end()) found->second->on_polled(send);
      });
}

void Device::finish_landing() {
  for (const auto& [number, queue_pair] : queue_pairs_) queue_pair->finish_landing();
}

// --- attributes ---

void Device::describe(ibv_device_attr& attributes) const {
  attributes = {};
  std::snprintf(attributes.fw_ver, sizeof attributes.fw_ver, "hostile %lu", behavior_.seed);
  attributes.max_mr_size = behavior_.max_region_bytes;
  attributes.page_size_cap = 4096;
  attributes.max_qp = static_cast<int>(behavior_.max_queue_pairs);
  attributes.max_qp_wr = static_cast<int>(behavior_.max_work_requests);
  attributes.max_sge = attributes.max_srq_sge = static_cast<int>(behavior_.max_pieces);
  attributes.max_cq = static_cast<int>(behavior_.max_completion_queues);
  attributes.max_cqe = static_cast<int>(behavior_.max_completions);
  attributes.max_mr = static_cast<int>(behavior_.max_regions);
  attributes.max_pd = attributes.max_srq = 1;
  attributes.max_qp_rd_atom = behavior_.max_reads;
  attributes.max_qp_init_rd_atom = behavior_.max_reads_started;
  attributes.max_srq_wr = static_cast<int>(behavior_.max_shared_receives);
  attributes.max_pkeys = behavior_.pkey_table;
  attributes.phys_port_cnt = 1;
}

void Device::describe(ibv_port_attr& port) const {
  constexpr uint8_t kHdr = 32;       // of active_speed
  constexpr uint8_t kFourLanes = 2;  // of active_width
  port = {};
  port.state = wire_->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  port.max_mtu = port.active_mtu = static_cast<ibv_mtu>(std::countr_zero(behavior_.mtu) - 7);
  port.gid_tbl_len = 1;
  port.max_msg_sz = 1U << 30;
  port.pkey_tbl_len = behavior_.pkey_table;
  port.active_speed = kHdr;
  port.active_width = kFourLanes;
  port.lid = behavior_.infiniband ? static_cast<uint16_t>(number_ + 1) : uint16_t{0};
  port.sm_lid = port.lid;
  port.link_layer = behavior_.infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  if (behavior_.grh_required) port.flags = IBV_QPF_GRH_REQUIRED;
}

// --- objects ---

ibv_qp* Device::create_queue_pair(ibv_pd* domain, ibv_qp_init_attr& wanted) {
  const ibv_qp_cap& cap = wanted.cap;
  const bool possible =
      wanted.qp_type == IBV_QPT_RC && wanted.send_cq != nullptr && wanted.recv_cq != nullptr &&
      cap.max_send_wr <= behavior_.max_work_requests &&
      cap.max_recv_wr <= behavior_.max_work_requests && cap.max_send_sge <= behavior_.max_pieces &&
      cap.max_recv_sge <= behavior_.max_pieces && cap.max_inline_data <= behavior_.max_inline;
  if (!possible) return errno = EINVAL, nullptr;
  if (queue_pairs_.size() >= behavior_.max_queue_pairs) return errno = ENOMEM, nullptr;
  auto queue_pair = std::make_unique<QueuePair>(*this, wanted);
  uint32_t number = uint32_t{wire_->port().context} << kQueuePairBits | kFirstQueuePair;
  while (queue_pairs_.contains(number)) ++number;  // numbers are used again at once
  queue_pair->verbs.qp_num = queue_pair->verbs.handle = number;
  queue_pair->verbs.pd = domain;
  wanted.cap = queue_pair->capacity();
  ++reinterpret_cast<CompletionQueue*>(wanted.send_cq)->users;
  ++reinterpret_cast<CompletionQueue*>(wanted.recv_cq)->users;
  if (wanted.srq != nullptr) ++reinterpret_cast<SharedReceives*>(wanted.srq)->users;
  return &(queue_pairs_[number] = std::move(queue_pair))->verbs;
}

int Device::destroy_queue_pair(ibv_qp* which, std::unique_lock<std::mutex>& lock) {
  events_.forget(which, lock);
  const auto found = queue_pairs_.find(which->qp_num);
  if (found == queue_pairs_.end()) return EINVAL;
  found->second->give_back();
  for (ibv_cq* queue : {which->send_cq, which->recv_cq}) {
    auto* const completions = reinterpret_cast<CompletionQueue*>(queue);
    completions->forget(which->qp_num);
    --completions->users;
  }
  queue_pairs_.erase(found);
  return 0;
}

ibv_cq* Device::create_completion_queue(int entries, ibv_comp_channel* channel, void* user) {
  const bool possible = entries > 0 && static_cast<uint32_t>(entries) <= behavior_.max_completions;
  if (!possible) return errno = EINVAL, nullptr;
  const bool room = completion_queues_.size() < behavior_.max_completion_queues;
  if (!room) return errno = ENOMEM, nullptr;
  auto queue = std::make_unique<CompletionQueue>(behavior_);
  queue->verbs.context = context();
  queue->verbs.channel = channel;
  queue->verbs.cq_context = user;
  queue->verbs.cqe = entries;
  completion_queues_.push_back(std::move(queue));
  return &completion_queues_.back()->verbs;
}

int Device::destroy_completion_queue(ibv_cq* which, std::unique_lock<std::mutex>& lock) {
  events_.forget(which, lock);
  const auto found = std::ranges::find_if(completion_queues_,
                                          [&](const auto& each) { return &each->verbs == which; });
  if (found == completion_queues_.end()) return EINVAL;
  if ((*found)->users > 0) return EBUSY;
  if (which->channel != nullptr) {
    std::erase(reinterpret_cast<CompletionChannel*>(which->channel)->events.events, which);
  }
  completion_queues_.erase(found);
  return 0;
}

// All accepted data lands before the region is removed.
void Device::remove_region(const Region& region) {
  finish_landing();
  regions_.remove(region);
}

bool Device::uses(const ibv_pd* domain) const {
  const bool by_queue_pair = std::ranges::any_of(
      queue_pairs_, [&](const auto& each) { return each.second->verbs.pd == domain; });
  const bool by_receives = std::ranges::any_of(
      shared_receives, [&](const SharedReceives* each) { return each->verbs.pd == domain; });
  return by_queue_pair || by_receives || regions_.any_in(domain);
}

}  // namespace pacecar::hostile
