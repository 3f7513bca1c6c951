// A process with one device on hostile RDMA devices that have a thread of their own, and
// connections between two such processes.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/hostile_verbs/hostile_verbs.h"
#include "tests/support/joining_process.h"
#include "transport/api/engine_context.h"
#include "transport/engine/clock.h"
#include "transport/io/udp/parse_address.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar::test {

class HostileProcess {
 public:
  // Uses the hostile devices `first` ... `first + nics - 1`.
  HostileProcess(uint32_t first, uint32_t nics) {
    Params params;
    params.state_dir = kNoStateDirectory;
    EngineContext::Group group;
    for (uint32_t i = 0; i < nics; ++i) {
      const std::string name = "hostile" + std::to_string(first + i);
      auto port = VerbsNic::open({.device = name,
                                  .flows = 16,
                                  .queue_pairs = 32,
                                  .regions = 512,
                                  .silence_limit = params.timeout * 6 / 10,
                                  .address = parse_address("127.0.0.1:0").value()},
                                 clock_now());
      if (!port) throw std::runtime_error(port.error().message);
      const auto identity = identity_of_nic(identity_, static_cast<uint8_t>(i));
      group.push_back({.info = {.name = name, .cuda = true, .dma_buf = true, .gpu_flush = true},
                       .engine = Engine::open(params, std::move(*port), identity).value()});
    }
    context_ =
        std::make_unique<EngineContext>(params, std::vector<EngineContext::Group>{std::move(group)},
                                        LogSink{}, bootstrap::ClusterKey{});
  }

  Context& context() { return *context_; }
  const Memory* register_memory(void* address, size_t length, MemoryKind kind) {
    return context_->register_memory(0, {.address = address, .length = length, .kind = kind})
        .value();
  }

 private:
  const NicIdentity identity_ = random_identity();
  std::unique_ptr<Context> context_;
};

}  // namespace pacecar::test
