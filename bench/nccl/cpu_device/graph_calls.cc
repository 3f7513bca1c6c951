// CUDA graphs, of the driver library and of the runtime, as far as NCCL and its callers use them.
#include <memory>
#include <utility>

#include "bench/nccl/cpu_device/calls.h"
#include "bench/nccl/cpu_device/graph.h"

using namespace pacecar::nccl::cpu;

namespace {

struct UserObject {
  std::shared_ptr<void> object;
  unsigned references;  // of the caller
};

const Event& event_of(const void* handle) { return *static_cast<const Event*>(handle); }
Graph& graph_of(void* handle) { return *static_cast<Graph*>(handle); }

}  // namespace

// --- capture ---

CPU_DEVICE_EXPORT int cudaStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id,
                                                  void** graph, const void*** dependencies,
                                                  size_t* count) {
  Graph* const captured = stream_of(stream).graph();
  *status = captured != nullptr ? 1 : 0;
  if (captured != nullptr && id != nullptr) *id = captured->id();
  if (graph != nullptr) *graph = captured;
  // Order is dependency enough.
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuStreamBeginCapture_v2(void* stream, int) {
  if (stream_of(stream).graph() != nullptr) return kInvalidValue;
  Graph::begin(stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  Graph* const captured = stream_of(stream).graph();
  if (captured == nullptr) return kInvalidValue;
  captured->end();
  return give(graph, captured);
}

CPU_DEVICE_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  std::swap(current, *mode);
  return kSuccess;
}

CPU_DEVICE_SAME(cudaThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode)

CPU_DEVICE_EXPORT int cudaStreamIsCapturing(void* stream, int* status) {
  return cudaStreamGetCaptureInfo_v2(stream, status, nullptr, nullptr, nullptr, nullptr);
}
CPU_DEVICE_EXPORT int cudaStreamGetCaptureInfo_v3(void* stream, int* status, unsigned long long* id,
                                                  void** graph, const void*** dependencies,
                                                  const void**, size_t* count) {
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

// --- nodes; their dependencies were captured before them ---

CPU_DEVICE_EXPORT int cudaGraphAddEventRecordNode(void**, void* graph, const void*, size_t,
                                                  void* event) {
  graph_of(graph).add([event = event_of(event)] { return event.next_point(); });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGraphAddEventWaitNode(void**, void* graph, const void*, size_t,
                                                void* event) {
  graph_of(graph).add([event = event_of(event)] { return event.held(); });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGraphAddHostNode(void**, void* graph, const void*, size_t,
                                           const void* parameters) {
  struct Host {  // cudaHostNodeParams
    HostFunction function;
    void* argument;
  };
  graph_of(graph).add([host = *static_cast<const Host*>(parameters)]() -> Command {
    return [host] {
      host.function(host.argument);
      return true;
    };
  });
  return kSuccess;
}

CPU_DEVICE_NOTHING_TO_DO(cudaGraphAddDependencies)
CPU_DEVICE_NOTHING_TO_DO(cudaGraphAddDependencies_v2)
CPU_DEVICE_NOTHING_TO_DO(cudaStreamUpdateCaptureDependencies)
CPU_DEVICE_NOTHING_TO_DO(cudaStreamUpdateCaptureDependencies_v2)

// --- objects that graphs keep ---

CPU_DEVICE_EXPORT int cudaUserObjectCreate(void** object, void* what, HostFunction destroy,
                                           unsigned references, unsigned) {
  return give(object, new UserObject{{what, destroy}, references});
}

CPU_DEVICE_EXPORT int cudaUserObjectRelease(void* handle, unsigned count) {
  auto* const object = static_cast<UserObject*>(handle);
  if ((object->references -= count) == 0) delete object;
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaGraphRetainUserObject(void* graph, void* object, unsigned count,
                                                unsigned flags) {
  constexpr unsigned kMove = 1;
  graph_of(graph).retain(static_cast<UserObject*>(object)->object);
  return (flags & kMove) != 0 ? cudaUserObjectRelease(object, count) : kSuccess;
}

// --- launches: an executable graph is a copy ---

CPU_DEVICE_EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph,
                                                  unsigned long long) {
  return give(executable, new Graph(graph_of(graph)));
}

CPU_DEVICE_EXPORT int cuGraphLaunch(void* executable, void* stream) {
  graph_of(executable).launch(stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuGraphDestroy(void* graph) {
  delete &graph_of(graph);
  return kSuccess;
}
CPU_DEVICE_SAME(cuGraphExecDestroy, cuGraphDestroy)
