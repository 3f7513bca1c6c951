#include "net_plugin/process_communicator.h"

#include <mutex>

#include "net_plugin/communicator.h"
#include "net_plugin/entry_points.h"

namespace pacecar::plugin {
namespace {

struct Holder {
  std::mutex mutex;
  void* context = nullptr;
};

// Never destroyed: NCCL's threads may still call while the process ends.
Holder& holder() {
  static Holder* const instance = new Holder;
  return *instance;
}

}  // namespace

nccl::NcclResult init_process(nccl::Logger logger) noexcept {
  Holder& held = holder();
  const std::lock_guard lock(held.mutex);
  if (held.context != nullptr) return nccl::NcclResult::kSuccess;
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
