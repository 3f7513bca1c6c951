// CoreThread: the thread of a Core. It takes turns as long as there is work, and a little longer;
// then it sleeps until something arrives or is handed over, without using the processor.
#pragma once

#include <atomic>
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

class CoreThread {
 public:
  // `core` outlives it. `processors`: where it runs; null: anywhere.
  CoreThread(Core& core, const CoreThreadConfig& config, const Processors* processors);
  ~CoreThread();

 private:
  void run();
  void sleep();

  Core& core_;
  const CoreThreadConfig config_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pacecar
