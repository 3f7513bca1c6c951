#include "transport/io/dpdk/burst_gate.h"

#include <rte_alarm.h>
#include <rte_ethdev.h>

#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <semaphore>
#include <thread>

namespace pacecar {
namespace {

constexpr std::chrono::milliseconds kHold(10);
constexpr std::chrono::milliseconds kHoldWhileConnecting(1);
// An alarm that is already due follows the one before it directly, without a look at other events.
constexpr std::chrono::microseconds kTurn(100);
constexpr std::chrono::microseconds kTurnWithoutLink(1000);

std::mutex turns;
// By port. Changes only in an InterruptTurn. Needs no destructor: that thread runs until the
// process ends.
std::bitset<RTE_MAX_ETHPORTS> guarded;
std::counting_semaphore<> wanted(0);
std::atomic<bool> held{false};
std::atomic<int> bursts{0};

void hold(void* /*none*/);

void hold_after(std::chrono::microseconds turn) {
  rte_eal_alarm_set(static_cast<uint64_t>(turn.count()), hold, nullptr);
}

void hold(void* /*none*/) {
  size_t links = 0;
  for (uint16_t port = 0; port < guarded.size(); ++port) links += guarded[port] && has_link(port);
  if (links == 0) return hold_after(kTurnWithoutLink);
  held = true;
  wanted.try_acquire_for(links == guarded.count() ? kHold : kHoldWhileConnecting);
  held = false;
  while (bursts > 0) std::this_thread::yield();
  hold_after(kTurn);
}

}  // namespace

InterruptTurn::InterruptTurn() : lock_(turns) {
  if (guarded.none()) return;
  wanted.release();
  rte_eal_alarm_cancel(hold, nullptr);  // waits until it does not run
}

InterruptTurn::~InterruptTurn() {
  if (guarded.any()) hold_after(kTurn);
}

void add_guarded_device(uint16_t port_id) {
  const InterruptTurn turn;
  guarded.set(port_id);
}

void remove_guarded_device(uint16_t port_id) {
  const InterruptTurn turn;
  guarded.reset(port_id);
}

GuardedBurst::GuardedBurst(uint16_t port_id) : may_run_(true) {
  while (++bursts, !held) {
    --bursts;
    may_run_ = has_link(port_id);
    if (!may_run_) return;
    std::this_thread::yield();
  }
}

GuardedBurst::~GuardedBurst() {
  if (may_run_) --bursts;
}

bool has_link(uint16_t port_id) {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace pacecar
