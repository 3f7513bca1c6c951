// A profiler plugin for NCCL (table version 4, NCCL 2.27 and later) that adds up what the slices of
// a job wait for, as NCCL's proxy sees it. When the communicator ends, the plugin writes one JSON
// object to the file $SLICE_WAITS.PID: for each kind of wait the number of slices that waited and
// the seconds of all together.
//
// Thread rule: NCCL's proxy thread and the thread that makes and ends the communicator call it; a
// mutex protects the totals.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "net_plugin/abi/profiler.h"

namespace pacecar::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSuccess = NcclResult::kSuccess;

struct Wait {
  ProfileState state;  // in which a slice waits
  const char* name;
};
constexpr std::array kWaits{
    Wait{ProfileState::kSendGpuWait, "send: for the GPU's data"},
    Wait{ProfileState::kSendPeerWait, "send: for the receiver's buffer (isend gives no request)"},
    Wait{ProfileState::kSendWait, "send: for the network (isend to test)"},
    Wait{ProfileState::kReceiveWait, "receive: for the network (irecv to test)"},
    Wait{ProfileState::kReceiveFlushWait, "receive: for the flush to the GPU"},
    Wait{ProfileState::kReceiveGpuWait, "receive: for the GPU to take it"}};

struct Total {
  uint64_t slices = 0;
  Clock::duration time{};
};
std::mutex mutex;
std::array<Total, kWaits.size()> totals;

struct Step {
  size_t wait = kWaits.size();  // none yet
  Clock::time_point since;
};
Step operation;  // the handle of every event that is not a step: NCCL requires one

void end_wait(const Step& step, Clock::time_point now) {
  if (step.wait == kWaits.size()) return;
  const std::scoped_lock lock(mutex);
  ++totals[step.wait].slices;
  totals[step.wait].time += now - step.since;
}

NcclResult init(void** context, int* events, const char*, uint64_t, int, int, int, Logger) {
  *context = &totals;
  *events = kProfileProxyOp | kProfileProxyStep;
  return kSuccess;
}

NcclResult start_event(void*, void** handle, ProfileEventV4* event) {
  *handle = event->type == kProfileProxyStep ? new Step : &operation;
  return kSuccess;
}

NcclResult record_state(void* handle, ProfileState state, ProfileStateArgumentsV4*) {
  auto* step = static_cast<Step*>(handle);
  if (step == nullptr || step == &operation) return kSuccess;
  for (size_t wait = 0; wait < kWaits.size(); ++wait) {
    // NCCL may report the same state again: the wait continues.
    if (kWaits[wait].state != state || wait == step->wait) continue;
    const auto now = Clock::now();
    end_wait(*step, now);
    *step = {.wait = wait, .since = now};
  }
  return kSuccess;
}

NcclResult stop_event(void* handle) {
  auto* step = static_cast<Step*>(handle);
  if (step == nullptr || step == &operation) return kSuccess;
  end_wait(*step, Clock::now());
  delete step;
  return kSuccess;
}

NcclResult finalize(void*) {
  const char* place = std::getenv("SLICE_WAITS");
  if (place == nullptr) return kSuccess;
  std::FILE* file = std::fopen((std::string(place) + "." + std::to_string(getpid())).c_str(), "w");
  if (file == nullptr) return kSuccess;  // a profile is not worth a failed job
  const std::scoped_lock lock(mutex);
  for (size_t wait = 0; wait < kWaits.size(); ++wait) {
    const double seconds = std::chrono::duration<double>(totals[wait].time).count();
    std::fprintf(file, "%s\"%s\": [%llu, %.9f]", wait == 0 ? "{" : ", ", kWaits[wait].name,
                 static_cast<unsigned long long>(totals[wait].slices), seconds);
  }
  std::fprintf(file, "}\n");
  std::fclose(file);
  return kSuccess;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const ProfilerV4 ncclProfiler_v4 = {
    "slice waits", init, start_event, stop_event, record_state, finalize};

}  // namespace pacecar::nccl
