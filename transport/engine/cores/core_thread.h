// The thread of a Core. It takes turns as long as there is work, and a little longer; then it
// sleeps until something arrives or is handed over, without using the processor.
#pragma once

#include <thread>

#include "transport/engine/cores/core.h"
#include "transport/engine/cores/processors.h"

namespace pacecar {

struct CoreThreadConfig {
  SoftPort::Clock clock = nullptr;
  Duration spin;       // PACECAR_SPIN
  bool blind = false;  // a decorator may hold packets back, which must be polled
};

// `core` outlives the thread. `processors`: where it runs; null: anywhere.
std::jthread start_core_thread(Core& core, const CoreThreadConfig& config,
                               const Processors* processors);

}  // namespace pacecar
