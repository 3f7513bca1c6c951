#include "transport/engine/cores/core_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace pacecar {
namespace {

void sleep(Core& core, const CoreThreadConfig& config, const std::stop_token& stop) {
  core.bell().expect();
  const Instant deadline = stop.stop_requested() ? Instant() : core.prepare_to_wait();
  const bool endless = deadline == Instant::never();
  const Duration left = endless ? Duration::max() : deadline - config.clock();
  const Duration limit = std::min(left, config.longest_sleep);
  if (limit > Duration()) {
    std::array<pollfd, 2> waiting{pollfd{core.wait_fd(), POLLIN, 0},
                                  pollfd{core.bell().fd(), POLLIN, 0}};
    const timespec timeout{limit.ns() / 1'000'000'000, limit.ns() % 1'000'000'000};
    ppoll(waiting.data(), waiting.size(), limit == Duration::max() ? nullptr : &timeout, nullptr);
  }
  core.bell().answer();
}

void run(Core& core, const CoreThreadConfig& config, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [&core] { core.bell().ring(); });
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the application's
  prctl(PR_SET_TIMERSLACK, 1);                // sleeps end in time, not up to 50 us later
  pthread_setname_np(pthread_self(), "pacecar core");
  Instant last_moved = config.clock();
  while (!stop.stop_requested()) {
    const Instant now = config.clock();
    if (core.turn(now, config.clock)) {
      last_moved = now;
    } else if (now - last_moved >= config.spin) {
      sleep(core, config, stop);
    }
  }
}

}  // namespace

std::jthread start_core_thread(Core& core, const CoreThreadConfig& config,
                               const Processors* processors) {
  return std::jthread([&core, config, processors](const std::stop_token& stop) {
    if (processors != nullptr) processors->bind_this_thread();
    run(core, config, stop);
  });
}

}  // namespace pacecar
