#include "transport/rma/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/rma/rank_connector.h"

namespace pacecar::rma {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLinger = std::chrono::milliseconds(100);
// The keeper takes over 5 to 10 ms after the application's last call.
constexpr Duration kCallerPatience = Duration::from_ms(5);

}  // namespace

Group::Group(std::shared_ptr<Context> context, size_t nic, size_t rank, size_t ranks, LogSink log)
    : context_(std::move(context)),
      nic_(nic),
      rank_(rank),
      log_(log),
      records_(2 * kRecords * ranks),
      windows_(context_, nic, ranks),
      arrivals_(context_, nic, windows_) {}

Result<std::unique_ptr<Group>> Group::join(std::shared_ptr<Context> context, size_t nic,
                                           Listener& listener, std::span<const Handle> handles,
                                           size_t rank, uint32_t weight, LogSink log) {
  if (rank >= handles.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of {} ranks joins: give 0 to {}", rank, handles.size(),
                            std::max<size_t>(handles.size(), 1) - 1));
  }
  auto group =
      std::unique_ptr<Group>(new Group(std::move(context), nic, rank, handles.size(), log));
  OwnPages<Record>& records = group->records_;
  ASSIGN_OR_RETURN(auto memory,
                   group->context_->register_memory(nic, records.data(), records.bytes()));
  group->records_memory_ = memory;
  RankConnector connector(*group->context_, nic, listener, rank, handles.size(), records.data(),
                          memory);
  RETURN_IF_ERROR(connector.connect_all(handles, weight));
  for (size_t peer = 0; peer < handles.size(); ++peer) {
    group->peers_.emplace_back(peer, connector.take_inbox(peer), connector.take_outbox(peer),
                               group->windows_, group->arrivals_);
  }
  ASSIGN_OR_RETURN(group->driver_, ProgressDriver::make(*group, {.patience = kCallerPatience,
                                                                 .nap = kCallerPatience,
                                                                 .longest_nap = kCallerPatience}));
  group->driver_->start();
  return group;
}

Group::~Group() {
  if (mutex_.forked()) {
    (void)driver_.release();  // its thread runs in the parent
    return;
  }
  if (driver_ != nullptr) driver_->stop();
  for (Peer& peer : peers_) peer.send({.kind = RecordKind::kBye}, nullptr);
  const auto give_up = Clock::now() + kLinger;
  const auto idle = [](const Peer& peer) { return peer.idle(); };
  while (!arrivals_.idle() || !std::ranges::all_of(peers_, idle)) {
    if (!advance()) context_->rest(nic_);
    if (Clock::now() >= give_up) break;
  }
  peers_.clear();
  if (records_memory_ != nullptr) (void)context_->deregister_memory(nic_, records_memory_);
}

bool Group::advance() {
  bool came = false;
  for (Peer& peer : peers_) came |= peer.advance();
  came |= count_arrivals();
  for (Peer& peer : peers_) {
    if (const auto failed = peer.newly_failed()) {
      log_(LogLevel::kWarn, "one-sided operations: " + failed->message);
      if (!failure_) failure_ = failed;
    }
  }
  return came;
}

// True: there are arrivals, counted or not.
bool Group::count_arrivals() {
  if (arrivals_.idle()) return false;
  const auto ended = arrivals_.advance();
  if (!ended) {
    // A signal that cannot count is lost, so all operations fail.
    arrivals_.fail(ended.error());
    for (Peer& peer : peers_) peer.fail_all(ended.error());
    return true;
  }
  for (const Arrival& arrival : *ended) {
    if (arrival.kind == ArrivalKind::kFlush) {
      --arrival.operation->left;
    } else {
      peers_[arrival.rank].on_arrival(arrival);
    }
  }
  return true;
}

void Group::progress() {
  driver_->note_call(clock_now());
  context_->progress(nic_);
  const std::lock_guard lock(mutex_);
  polled_ = true;
  advance();
}

Turn Group::take_turn() {
  const std::lock_guard lock(mutex_);  // it is held only briefly
  return advance() ? Turn::kMoved : Turn::kIdle;
}

// A rest ends by itself.
void Group::prepare_to_sleep() { driver_->announce_sleep(Instant::never()); }

void Group::sleep(Instant /*until*/, int /*bell*/) { context_->rest(nic_); }

std::optional<Error> Group::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Result<SharedWindow*> Group::share(const MemoryRange& range) {
  Place own;
  std::shared_ptr<StagedRange> copies;
  {
    const std::lock_guard lock(mutex_);
    ASSIGN_OR_RETURN(own, windows_.register_own(range));
    copies = windows_.own_copies(own.id);
  }
  const auto prepared = copies == nullptr ? Result<void>() : prepare(copies->engine(), own.staged);
  {
    std::unique_lock lock(mutex_);
    if (!prepared) {
      release(lock, windows_.release_own(own.id));
      return tl::unexpected(prepared.error());
    }
    for (Peer& peer : peers_) peer.share(own);
  }
  while (true) {
    progress();
    {
      std::unique_lock lock(mutex_);
      if (windows_.all_announced()) return windows_.take_announced(rank_, own);
      const auto gone = std::ranges::find_if(peers_, [this](const Peer& peer) {
        const auto rank = static_cast<size_t>(&peer - peers_.data());
        return peer.failure() || (peer.left() && !windows_.announced(rank));
      });
      if (gone != peers_.end()) {
        auto error =
            fail(ErrorCode::kPeer,
                 gone->failure()
                     ? gone->failure()->message
                     : fmt::format("rank {} has left and shares no further window: look there",
                                   gone - peers_.begin()));
        release(lock, windows_.release_own(own.id));
        return error;
      }
    }
    context_->rest(nic_);
  }
}

// Without the lock: allocating pinned memory may wait for running kernels, and these may wait for
// other ranks' signals.
Result<void> Group::prepare(const std::shared_ptr<const CopyEngine>& engine, bool staged) {
  if (!arrivals_.has_scratch()) {
    ASSIGN_OR_RETURN(auto scratch,
                     PinnedMemory::allocate(engine, Arrivals::kMost * sizeof(uint64_t)));
    const std::lock_guard lock(mutex_);
    arrivals_.use(std::move(scratch));
  }
  if (!staged || landing_ != nullptr) return {};
  ASSIGN_OR_RETURN(auto landing, Landing::make(context_, nic_, engine, peers_.size()));
  const std::lock_guard lock(mutex_);
  landing_ = std::move(landing);
  for (Peer& peer : peers_) peer.land_in(*landing_);
  return {};
}

void Group::unshare(SharedWindow* window) {
  std::unique_lock lock(mutex_);
  release(lock, windows_.unshare(window, rank_));
}

// A peer has a get's bytes before their acknowledgement arrives here, so the answer to a get that
// is done there may still be outstanding here.
void Group::release(std::unique_lock<OwnMutex>& lock, const std::optional<OwnMemory>& own) {
  if (!own) return;
  progress_while(lock, [&] {
    return std::ranges::any_of(peers_,
                               [&](const Peer& peer) { return peer.answers_from(own->place.id); });
  });
  for (Peer& peer : peers_) peer.withdraw(own->memory);
  windows_.deregister(*own);
}

// Releases the lock meanwhile.
template <typename Waits>
void Group::progress_while(std::unique_lock<OwnMutex>& lock, const Waits& waits) {
  while (waits()) {
    lock.unlock();
    progress();
    context_->rest(nic_);
    lock.lock();
  }
}

Result<Operation*> Group::begin(std::unique_lock<OwnMutex>& lock, size_t rank) {
  progress_while(lock, [&] { return peers_[rank].full(); });
  if (peers_[rank].closed()) return tl::unexpected(peers_[rank].closed_error());
  if (free_.empty()) return &operations_.emplace_back();
  Operation* const operation = free_.back();
  free_.pop_back();
  *operation = Operation();
  return operation;
}

// Checks the rank, and bounds in the owner's window.
Result<void> Group::check(size_t rank, const Location& bytes, size_t owner, size_t size) const {
  if (rank >= peers_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no rank {}: the last one is {}", rank, peers_.size() - 1));
  }
  if (size == 0) return {};
  if (bytes.window == nullptr) return fail(ErrorCode::kInvalidArgument, "bytes of no window");
  const uint64_t length = bytes.window->places[owner].window.length;
  if (size <= length && bytes.offset <= length - size) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} bytes at {} of a window of rank {}, which has {} bytes, for an "
                          "operation with rank {}",
                          size, bytes.offset, owner, length, rank));
}

Result<Operation*> Group::put(size_t rank, const Location& from, size_t size, const Location& to,
                              const std::optional<Signal>& signal) {
  std::unique_lock lock(mutex_);
  RETURN_IF_ERROR(check(rank, from, rank_, size));
  RETURN_IF_ERROR(check(rank, to, rank, size));
  if (signal) RETURN_IF_ERROR(check(rank, signal->word, rank, sizeof(uint64_t)));
  if (signal && signal->word.offset % sizeof(uint64_t) != 0) {
    return fail(ErrorCode::kInvalidArgument, "a signal's word is not at a multiple of 8 bytes");
  }
  ASSIGN_OR_RETURN(Operation* const operation, begin(lock, rank));
  Peer& peer = peers_[rank];
  // An empty put is sent only without a signal.
  if (size > 0 || !signal) {
    const bool none = size == 0;
    peer.put({.data = none ? nullptr : from.window->base + from.offset,
              .size = size,
              .memory = none ? nullptr : from.window->memory,
              .to = none ? Place() : to.window->places[rank],
              .offset = none ? 0 : to.offset},
             *operation);
  }
  if (signal) {
    peer.send({.kind = RecordKind::kSignal,
               .window = signal->word.window->places[rank].id,
               .offset = signal->word.offset,
               .value = signal->value},
              operation);
  }
  peer.advance();
  // The first signal leaves at once; later ones before the next poll leave together.
  if (signal && std::exchange(polled_, false)) peer.send_now();
  return operation;
}

Result<Operation*> Group::get(size_t rank, const Location& from, size_t size, const Location& to) {
  std::unique_lock lock(mutex_);
  RETURN_IF_ERROR(check(rank, from, rank, size));
  RETURN_IF_ERROR(check(rank, to, rank_, size));
  ASSIGN_OR_RETURN(Operation* const operation, begin(lock, rank));
  if (size > 0) {
    peers_[rank].get({.window = from.window->places[rank].id,
                      .offset = from.offset,
                      .length = size,
                      .answer_window = to.window->places[rank_].id,
                      .answer_offset = to.offset},
                     *operation);
    peers_[rank].advance();
  }
  return operation;
}

Result<Operation*> Group::flush(size_t rank) {
  std::unique_lock lock(mutex_);
  RETURN_IF_ERROR(check(rank));
  ASSIGN_OR_RETURN(Operation* const operation, begin(lock, rank));
  peers_[rank].flush(*operation);
  return operation;
}

Result<bool> Group::test(Operation* operation) {
  std::unique_lock lock(mutex_);
  if (!operation->done()) {
    lock.unlock();
    progress();
    lock.lock();
  }
  if (operation->error) return tl::unexpected(*operation->error);
  if (!operation->done()) return false;
  free_.push_back(operation);
  return true;
}

}  // namespace pacecar::rma
