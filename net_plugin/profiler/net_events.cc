#include "net_plugin/profiler/net_events.h"

#include <atomic>

#include "net_plugin/abi/profiler.h"
#include "transport/base/params_environment.h"

namespace pacecar::profiler {
namespace {

std::atomic<nccl::ProfilerCallback> g_callback{nullptr};

}  // namespace

ProfilerSetting profiler_setting() {
  const Result<Params> params = load_params_from_environment({}, nullptr);
  return params ? params->profiler : ProfilerSetting::kOff;
}

void set_net_event_callback(nccl::ProfilerCallback callback) {
  const bool wanted = profiler_setting() == ProfilerSetting::kAll;
  g_callback.store(wanted ? callback : nullptr, std::memory_order_relaxed);
}

void* begin_net_event(void* step, const NetEventData& data) {
  const nccl::ProfilerCallback callback = g_callback.load(std::memory_order_relaxed);
  if (step == nullptr || callback == nullptr) return nullptr;
  void* event = nullptr;
  NetEventData read = data;
  callback(&event, static_cast<int>(nccl::NetEvent::kStart), step, kNetEventId, &read);
  return event;
}

void end_net_event(void* event) {
  if (event == nullptr) return;
  const nccl::ProfilerCallback callback = g_callback.load(std::memory_order_relaxed);
  if (callback == nullptr) return;
  callback(&event, static_cast<int>(nccl::NetEvent::kStop), nullptr, kNetEventId, nullptr);
}

}  // namespace pacecar::profiler
