#include "transport/engine/cores/core_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace pacecar {

CoreThread::CoreThread(Core& core, const CoreThreadConfig& config, const Processors* processors)
    : core_(core), config_(config), thread_([this, processors] {
        if (processors != nullptr) processors->bind_this_thread();
        run();
      }) {}

CoreThread::~CoreThread() {
  stop_ = true;
  core_.bell().ring();
  thread_.join();
}

void CoreThread::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the application's
  prctl(PR_SET_TIMERSLACK, 1);                // sleep as long as asked, not 50 us longer
  pthread_setname_np(pthread_self(), "pacecar core");
  Instant last_moved = config_.clock();
  while (!stop_.load(std::memory_order_relaxed)) {
    const Instant now = config_.clock();
    if (core_.turn(now, config_.clock)) {
      last_moved = now;
    } else if (now - last_moved >= config_.spin) {
      sleep();
    }
  }
}

void CoreThread::sleep() {
  core_.bell().expect();
  const Instant deadline = stop_.load() ? Instant() : core_.prepare_to_wait();
  const bool endless = deadline == Instant::never();
  const Duration left = endless ? Duration::max() : deadline - config_.clock();
  const Duration limit = std::min(left, config_.longest_sleep);
  if (limit > Duration()) {
    std::array<pollfd, 2> waiting{pollfd{core_.wait_fd(), POLLIN, 0},
                                  pollfd{core_.bell().fd(), POLLIN, 0}};
    const timespec timeout{limit.ns() / 1'000'000'000, limit.ns() % 1'000'000'000};
    ppoll(waiting.data(), waiting.size(), limit == Duration::max() ? nullptr : &timeout, nullptr);
  }
  core_.bell().answer();
}

}  // namespace pacecar
