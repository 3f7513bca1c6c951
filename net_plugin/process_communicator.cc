#include "net_plugin/process_communicator.h"

#include <unistd.h>

#include <mutex>

#include "net_plugin/communicator.h"
#include "net_plugin/entry_points.h"

namespace pacecar::plugin {
namespace {

struct Holder {
  // The last control words still reach the peers. A child that was forked has none of our threads.
  ~Holder() {
    if (context != nullptr && owner == getpid()) finalize(context);
  }

  std::mutex mutex;
  void* context = nullptr;
  pid_t owner = 0;
};

Holder& holder() {
  static Holder instance;
  return instance;
}

}  // namespace

nccl::NcclResult init_process(nccl::Logger logger) noexcept {
  Holder& held = holder();
  const std::lock_guard lock(held.mutex);
  if (held.context != nullptr) return nccl::NcclResult::kSuccess;
  held.owner = getpid();
  return init(&held.context, logger, nccl::kUndefined);
}

void* process_context() noexcept {
  Holder& held = holder();
  const std::lock_guard lock(held.mutex);
  return held.context;
}

void check_traffic_class(const nccl::CommConfig* config) noexcept {
  const auto* const communicator = static_cast<const Communicator*>(process_context());
  if (config == nullptr || communicator == nullptr) return;
  if (const auto wanted = checked_traffic_class(config->traffic_class)) {
    communicator->check_traffic_class(*wanted);
  }
}

}  // namespace pacecar::plugin
