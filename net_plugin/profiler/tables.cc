// NCCL's tables of profiler functions, one per version, over one Recorder. The functions never
// throw, wait for no more than a short lock, and return success: a profiler must not disturb a job.
#include <unistd.h>

#include <algorithm>

#include "net_plugin/abi/profiler.h"
#include "net_plugin/profiler/recorder.h"
#include "transport/base/params_environment.h"

namespace pacecar::profiler {
namespace {

using nccl::NcclResult;
using nccl::ProfileState;

constexpr int kWantedEvents = nccl::kProfileCollective | nccl::kProfilePointToPoint |
                              nccl::kProfileProxyOp | nccl::kProfileProxyStep;

// By PACECAR_PROFILER. Where the parameters are invalid, the net plugin logs why.
bool wanted() {
  const Result<Params> params = load_params_from_environment({}, nullptr);
  return params && params->profiler == ProfilerSetting::kOn;
}

// NCCL has one activation mask for the process.
NcclResult open(void** context, int* activation_mask, const Identity& identity) noexcept {
  *context = nullptr;
  *activation_mask = 0;
  try {
    if (!wanted()) return NcclResult::kSuccess;
    *context = recorder().open(identity);
    *activation_mask = kWantedEvents;
  } catch (...) {  // no memory: the communicator is not recorded
  }
  return NcclResult::kSuccess;
}

NcclResult init_v4(void** context, int* activation_mask, const char* /*name*/, uint64_t comm_hash,
                   int nodes, int ranks, int rank, nccl::Logger /*logger*/) noexcept {
  return open(context, activation_mask, {comm_hash, rank, ranks, nodes});
}

NcclResult init_v5(void** context, uint64_t comm_id, int* activation_mask, const char* /*name*/,
                   int nodes, int ranks, int rank, nccl::Logger /*logger*/) noexcept {
  return open(context, activation_mask, {comm_id, rank, ranks, nodes});
}

template <size_t kCount>
uint8_t index_of(const std::array<std::string_view, kCount>& names, const char* name) {
  if (name == nullptr) return kUnknownName;
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? kUnknownName : static_cast<uint8_t>(found - names.begin());
}

// kNone: not recorded, e.g. another process's operation, whose handles are unknown here.
template <typename Event>
Description description_of(const Event& event) {
  const auto& whole = event.collective;
  const auto& message = event.point_to_point;
  const auto& op = event.proxy_op;
  switch (static_cast<int>(event.type)) {
    case nccl::kProfileCollective:
      return {.kind = EventKind::kCollective,
              .operation = index_of(kOperations, whole.function),
              .datatype = index_of(kDatatypes, whole.datatype),
              .peer = whole.root,
              .number = whole.sequence,
              .amount = whole.count};
    case nccl::kProfilePointToPoint:
      return {.kind = EventKind::kPointToPoint,
              .operation = index_of(kOperations, message.function),
              .datatype = index_of(kDatatypes, message.datatype),
              .sending = index_of(kOperations, message.function) == kSend,
              .peer = message.peer,
              .amount = message.count};
    case nccl::kProfileProxyOp:
      if (op.pid != getpid()) return {};
      return {.kind = EventKind::kProxyOp,
              .channel = op.channel,
              .sending = op.is_send != 0,
              .peer = op.peer,
              .number = static_cast<uint64_t>(std::max(op.steps, 0)),
              .amount = static_cast<uint64_t>(std::max(op.chunk_bytes, 0))};
    case nccl::kProfileProxyStep:
      return {.kind = event.parent != nullptr ? EventKind::kProxyStep : EventKind::kNone,
              .number = static_cast<uint64_t>(std::max(event.proxy_step.step, 0))};
    default: return {};
  }
}

template <typename Event>
NcclResult start(void* context, void** handle, Event* event) noexcept {
  *handle = nullptr;
  if (context == nullptr || event == nullptr) return NcclResult::kSuccess;
  const Description what = description_of(*event);
  if (what.kind == EventKind::kNone) return NcclResult::kSuccess;
  *handle = recorder().start(context, what, event->parent);
  return NcclResult::kSuccess;
}

NcclResult stop(void* handle) noexcept {
  recorder().stop(handle);
  return NcclResult::kSuccess;
}

// The states in which a step waits, and which of them come with the step's bytes.
struct StepWait {
  ProfileState state;
  Wait wait;
  bool has_bytes;
};
constexpr std::array<StepWait, 6> kStepWaits = {{
    {ProfileState::kSendGpuWait, Wait::kGpu, false},
    {ProfileState::kSendPeerWait, Wait::kPeer, false},
    {ProfileState::kSendWait, Wait::kNetwork, true},
    {ProfileState::kReceiveWait, Wait::kNetwork, false},
    {ProfileState::kReceiveFlushWait, Wait::kFlush, true},
    {ProfileState::kReceiveGpuWait, Wait::kGpu, true},
}};

NcclResult change(void* handle, ProfileState state,
                  nccl::ProfileStateArgumentsV4* arguments) noexcept {
  const auto found = std::ranges::find(kStepWaits, state, &StepWait::state);
  if (found == kStepWaits.end()) return NcclResult::kSuccess;
  const bool has_bytes = found->has_bytes && arguments != nullptr;
  recorder().wait(handle, found->wait, has_bytes ? arguments->proxy_step.bytes : 0);
  return NcclResult::kSuccess;
}

NcclResult finalize(void* context) noexcept {
  recorder().close(context);
  return NcclResult::kSuccess;
}

template <typename Init, typename Event>
constexpr auto filled(nccl::Profiler<Init, Event> table, std::type_identity_t<Init> init) {
  table = {"Pacecar", init, start<Event>, stop, change, finalize};
  return table;
}

}  // namespace

extern "C" {

#define PACECAR_PROFILER_TABLE(version, init)                                          \
  [[gnu::visibility(                                                                   \
      "default")]] extern constexpr nccl::ProfilerV##version ncclProfiler_v##version = \
      filled(nccl::ProfilerV##version{}, init);

PACECAR_PROFILER_TABLE(4, init_v4)
PACECAR_PROFILER_TABLE(5, init_v5)
PACECAR_PROFILER_TABLE(6, init_v5)
PACECAR_PROFILER_TABLE(7, init_v5)
#undef PACECAR_PROFILER_TABLE
}

}  // namespace pacecar::profiler
