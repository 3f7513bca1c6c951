#include "transport/engine/cores/core_thread.h"

#include <algorithm>
#include <array>

#include "transport/engine/own_thread.h"

namespace pacecar {
namespace {

void sleep(Core& core, const CoreThreadConfig& config, const std::stop_token& stop) {
  core.bell().expect();
  const Instant deadline = stop.stop_requested() ? Instant() : core.prepare_to_wait();
  std::array<pollfd, 2> waiting{pollfd{core.wait_fd(), POLLIN, 0},
                                pollfd{core.bell().fd(), POLLIN, 0}};
  sleep_until(config.blind ? std::min(deadline, config.clock() + kBlindSleep) : deadline, waiting);
  core.bell().answer();
}

void run(Core& core, const CoreThreadConfig& config, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [&core] { core.bell().ring(); });
  begin_thread("pacecar core");
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
