#include "transport/api/bond/keeper.h"

#include <chrono>
#include <system_error>

#include "transport/api/bond/bonded_end.h"
#include "transport/base/start_thread.h"
#include "transport/engine/clock.h"
#include "transport/engine/own_thread.h"

namespace pacecar {
namespace {

constexpr std::chrono::milliseconds kSoon{2};
// A lost lane is found at most this long after the silence limit. A look costs a few memory reads.
constexpr std::chrono::milliseconds kQuiet{50};

}  // namespace

Result<void> BondKeeper::start() {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return {};
  try {
    thread_ = start_thread<std::jthread>("drives joined NICs",
                                         [this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kSystem, error.what());
  }
  return {};
}

void BondKeeper::add(BondedEnd& connection) {
  const std::lock_guard lock(mutex_);
  connections_.push_back(&connection);
  if (connections_.size() == 1) changed_.notify_all();
}

void BondKeeper::remove(BondedEnd& connection) {
  if (process_.forked()) return;
  const std::lock_guard lock(mutex_);
  std::erase(connections_, &connection);
}

void BondKeeper::wake() {
  // Without the lock: a thread about to wait may miss it, and then waits one more period.
  woken_ = true;
  changed_.notify_all();
}

void BondKeeper::forget_memory(const Memory& memory) {
  if (process_.forked()) return;
  const std::lock_guard lock(mutex_);
  for (BondedEnd* connection : connections_) connection->forget_memory(memory);
}

void BondKeeper::run(const std::stop_token& stop) {
  begin_thread("pacecar-bond");
  std::unique_lock lock(mutex_);
  bool soon = false;
  while (!stop.stop_requested()) {
    changed_.wait(lock, stop, [this] { return !connections_.empty(); });
    changed_.wait_for(lock, stop, soon ? kSoon : kQuiet, [this] { return woken_.load(); });
    woken_ = soon = false;
    const Instant now = clock_now();
    for (BondedEnd* connection : connections_) soon |= connection->drive(now);
  }
}

}  // namespace pacecar
