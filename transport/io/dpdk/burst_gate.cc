#include "transport/io/dpdk/burst_gate.h"

#include <rte_alarm.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <semaphore>
#include <thread>

namespace pacecar {
namespace {

constexpr std::chrono::milliseconds kHold(10);
// An alarm that is already due follows the one before it directly, without a look at other events.
constexpr std::chrono::microseconds kTurn(100);

std::mutex turns;
int guarded_devices = 0;  // with `turns` held
std::counting_semaphore<> wanted(0);
std::atomic<bool> held{false};
std::atomic<int> bursts{0};

void hold_next();

void hold(void* /*none*/) {
  held = true;
  wanted.try_acquire_for(kHold);
  held = false;
  while (bursts > 0) std::this_thread::yield();
  hold_next();
}

void hold_next() { rte_eal_alarm_set(static_cast<uint64_t>(kTurn.count()), hold, nullptr); }

}  // namespace

InterruptTurn::InterruptTurn() : lock_(turns) {
  if (guarded_devices == 0) return;
  wanted.release();
  rte_eal_alarm_cancel(hold, nullptr);  // waits until it does not run
}

InterruptTurn::~InterruptTurn() {
  if (guarded_devices > 0) hold_next();
}

void add_guarded_device() {
  const InterruptTurn turn;
  ++guarded_devices;
}

void remove_guarded_device() {
  const InterruptTurn turn;
  --guarded_devices;
}

GuardedBurst::GuardedBurst() {
  while (++bursts, !held) {
    --bursts;
    std::this_thread::yield();
  }
}

GuardedBurst::~GuardedBurst() { --bursts; }

}  // namespace pacecar
