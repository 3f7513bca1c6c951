// Looks after bonded connections, whether or not anybody calls: what their ends must agree on when
// a lane is lost goes on by itself, as acknowledgements do. One sleeping thread for all of a
// Context, from the first bonded connection on.
//
// Thread rule: any thread; not from within tend().
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

class Memory;

class Tended {
 public:
  virtual ~Tended() = default;
  // Called from time to time; true: again soon.
  virtual bool tend(Instant now) = 0;
  // This memory is about to be deregistered: what is not under way must not use it any more.
  virtual void forget_memory(const Memory& memory) = 0;
};

class BondKeeper {
 public:
  BondKeeper() = default;
  ~BondKeeper();
  BondKeeper(const BondKeeper&) = delete;
  BondKeeper& operator=(const BondKeeper&) = delete;

  // Before the first connection. Errors: kSystem (no thread can be made).
  Result<void> start();
  void add(Tended& connection);
  // When it returns, nobody tends it any more.
  void remove(Tended& connection);
  // Something is to be done soon; also for those who hold a connection's lock.
  void hurry();
  void forget_memory(const Memory& memory);

 private:
  void keep();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Tended*> connections_;
  std::atomic<bool> hurried_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pacecar
