#include "transport/io/dpdk/drivers/interrupt_turns.h"

#include <rte_alarm.h>
#include <rte_ethdev.h>

#include <atomic>
#include <bitset>
#include <chrono>
#include <semaphore>
#include <thread>

namespace pacecar {
namespace {

// On a busy machine each turn costs a burst its processor.
constexpr std::chrono::milliseconds kHold(100);
constexpr std::chrono::milliseconds kHoldWhileConnecting(1);
// An alarm that is already due follows the one before it directly, without a look at other events.
constexpr std::chrono::microseconds kTurn(100);
constexpr std::chrono::microseconds kTurnWithoutLink(1000);

std::mutex turns;
// By port. Changes only in an InterruptTurn. Needs no destructor: that thread runs until the
// process ends.
std::bitset<RTE_MAX_ETHPORTS> guarded;
std::atomic<bool> turn_wanted{false};  // while an InterruptTurn lives
std::counting_semaphore<> ends_hold(0);
enum class Turn { kInterruptThread, kBursts, kNobody };  // kNobody: there is no link
std::atomic<Turn> turn{Turn::kNobody};
std::atomic<int> bursts{0};

void give(Turn to) {
  turn = to;
  turn.notify_all();
}

void hold(void* /*none*/);

void hold_after(std::chrono::microseconds time) {
  rte_eal_alarm_set(static_cast<uint64_t>(time.count()), hold, nullptr);
}

void hold(void* /*none*/) {
  if (turn_wanted) return;  // else an InterruptTurn would have to cancel this between two calls
  size_t links = 0;
  for (uint16_t port = 0; port < guarded.size(); ++port) links += guarded[port] && has_link(port);
  if (links == 0) {
    give(Turn::kNobody);
    return hold_after(kTurnWithoutLink);
  }
  give(Turn::kBursts);
  ends_hold.try_acquire_for(links == guarded.count() ? kHold : kHoldWhileConnecting);
  turn = Turn::kInterruptThread;
  // A burst that lasts longer than that has lost its processor.
  while (bursts > 0) std::this_thread::sleep_for(std::chrono::microseconds(10));
  hold_after(kTurn);
}

}  // namespace

InterruptTurn::InterruptTurn() : lock_(turns) {
  if (guarded.none()) return;
  turn_wanted = true;
  ends_hold.release();
  rte_eal_alarm_cancel(hold, nullptr);  // waits until it does not run
}

InterruptTurn::~InterruptTurn() {
  turn_wanted = false;
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
  while (++bursts, turn != Turn::kBursts) {
    --bursts;
    may_run_ = has_link(port_id);
    if (!may_run_) return;
    turn.wait(Turn::kInterruptThread);
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
