// The thread of a Core. It takes turns as long as there is work, and a little longer; then it
// sleeps until something arrives or is handed over, without using the processor.
#pragma once

#include <thread>

#include "transport/engine/cores/core.h"
#include "transport/engine/cores/processors.h"

namespace pacecar {

struct CoreThreadConfig {
  SoftPort::Clock clock = nullptr;
  Duration spin;  // PACECAR_SPIN
  // The longest sleep: packets that a decorator holds back must be polled.
  Duration longest_sleep = Duration::max();
};

// `core` outlives the thread. `processors`: where it runs; null: anywhere.
std::jthread start_core_thread(Core& core, const CoreThreadConfig& config,
                               const Processors* processors);

}  // namespace pacecar
