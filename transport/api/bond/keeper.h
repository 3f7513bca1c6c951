// Drives bonded connections, so that their ends agree on lost lanes. One thread for all connections
// of a Context, made with the first; it mostly sleeps. Thread rule: any thread; not in drive().
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/base/result.h"
#include "transport/engine/own_process.h"

namespace pacecar {

class BondedEnd;
class Memory;

class BondKeeper {
 public:
  // In a forked child it must not be destroyed: the parent's thread waits at `changed_`.
  bool inherited() const { return process_.forked(); }
  Result<void> start();  // Before the first connection. Errors: kSystem (no thread can be made).
  void add(BondedEnd& connection);
  void remove(BondedEnd& connection);  // No drive() of the connection runs after it returns.
  void wake();  // There is work to do soon. May be called with a connection's lock held.
  void forget_memory(const Memory& memory);

 private:
  void run(const std::stop_token& stop);

  const OwnProcess process_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<BondedEnd*> connections_;
  std::atomic<bool> woken_{false};
  std::jthread thread_;  // the last member, as it uses the others
};

}  // namespace pacecar
