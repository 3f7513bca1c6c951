#include "transport/engine/cores/core.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr size_t kPosts = 1024;
constexpr size_t kLimits = 256;
constexpr size_t kCompletions = 8192;
constexpr size_t kSignals = 256;
constexpr size_t kArrivals = 256;

// After this time the core tries again to publish, if the owner had left no room in the rings.
constexpr Duration kPublishAgain = Duration::from_us(50);

// Moves the elements that `poll` returns into the ring while it has room; false: some may be left.
template <typename T, typename Poll>
bool move_into(SpscRing<T>& ring, uint64_t& moved, Poll poll) {
  for (T element; !ring.full(); ++moved) {
    if (poll(std::span(&element, 1)) == 0) return true;
    PACECAR_CHECK(ring.push(element));
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Core>> Core::make(std::unique_ptr<SoftPort> port, Doorbell& owner) {
  ASSIGN_OR_RETURN(auto bell, Doorbell::make());
  return std::unique_ptr<Core>(new Core(std::move(port), owner, std::move(bell)));
}

Core::Core(std::unique_ptr<SoftPort> port, Doorbell& owner, std::unique_ptr<Doorbell> bell)
    : port_(std::move(port)),
      owner_(owner),
      bell_(std::move(bell)),
      posts_(kPosts),
      limits_(kLimits),
      completions_(kCompletions),
      signals_(kSignals),
      arrivals_(kArrivals),
      waiting_posts_(kPosts) {}

bool Core::post(QueuePairId id, const WorkRequest& work_request) {
  return waiting_posts_.push({id, work_request});
}

bool Core::hand_over() {
  const size_t waiting = waiting_posts_.size();
  while (!waiting_posts_.empty() && posts_.push(waiting_posts_.front())) waiting_posts_.pop_front();
  if (waiting_posts_.size() < waiting) bell_->ring();
  return waiting_posts_.empty();
}

bool Core::limit(FlowId flow, const FlowLimits& limits, Instant now) {
  if (!limits_.push({flow, limits, now})) return false;
  bell_->ring();
  return true;
}

bool Core::take_published() {
  const bool published = has_published();
  seen_ = published_.load(std::memory_order_acquire);
  return published;
}

void Core::count(NicCounters& total) const {
  auto sums = std::bit_cast<std::array<uint64_t, kCounters>>(total);
  for (size_t i = 0; i < kCounters; ++i) sums[i] += counters_[i].load(std::memory_order_relaxed);
  total = std::bit_cast<NicCounters>(sums);
}

void Core::halt(QueuePairId id) {
  const Hold hold(*this);
  port_->soft_nic().halt_queue_pair(id);
  while (!publish()) collect();  // the owner is in this call, so only this loop makes room
}

void Core::collect() {
  for (Completion element; completions_.pop(element);) early_completions_.push_back(element);
  for (FlowSignal element; signals_.pop(element);) early_signals_.push_back(element);
  for (FlowArrival element; arrivals_.pop(element);) early_arrivals_.push_back(element);
}

void Core::forget(FlowId flow) {
  const Hold hold(*this);
  publish();
  collect();
  std::erase_if(early_signals_, [flow](const FlowSignal& signal) { return signal.flow == flow; });
  std::erase_if(early_arrivals_, [flow](const auto& arrival) { return arrival.flow == flow; });
}

bool Core::turn(Instant now, SoftPort::Clock clock) {
  while (waiting_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
  const std::scoped_lock lock(mutex_);
  const size_t received = port_->receive(now);
  const size_t commands = take_commands();
  if (received + commands == 0 && now < deadline_) return false;
  if (received > 0 && clock != nullptr) now = clock();
  port_->on_time(now);
  publish();  // Publishes completions before the peer can get the acknowledgement.
  const size_t sent = port_->transmit(now);
  const Instant again = publish() ? Instant::never() : now + kPublishAgain;
  deadline_ = std::min(port_->next_deadline(), again);
  return received + commands + sent > 0;
}

Instant Core::prepare_to_wait(Instant now) {
  const std::scoped_lock lock(mutex_);
  const bool idle = port_->prepare_to_wait(now) && posts_.empty() && limits_.empty();
  return idle ? deadline_ : Instant();
}

size_t Core::take_commands() {
  SoftNic& nic = port_->soft_nic();
  size_t taken = 0;
  for (Limit limit; limits_.pop(limit); ++taken) {
    nic.set_flow_limits(limit.flow, limit.limits, limit.now);
  }
  // A broken queue pair accepts no posts; the owner gets its kBroken.
  for (Post post; posts_.pop(post); ++taken) nic.post(post.queue_pair, {&post.work_request, 1});
  return taken;
}

bool Core::publish() {
  SoftNic& nic = port_->soft_nic();
  uint64_t moved = 0;
  bool all = move_into(completions_, moved, [&nic](auto some) { return nic.poll(some); });
  all &= move_into(signals_, moved, [&nic](auto some) { return nic.poll_signals(some); });
  all &= move_into(arrivals_, moved, [&nic](auto some) { return nic.poll_arrivals(some); });
  const auto counts = std::bit_cast<std::array<uint64_t, kCounters>>(nic.counters());
  for (size_t i = 0; i < kCounters; ++i) counters_[i].store(counts[i], std::memory_order_relaxed);
  if (moved == 0) return all;
  published_.fetch_add(moved, std::memory_order_release);
  owner_.ring();
  return all;
}

}  // namespace pacecar
