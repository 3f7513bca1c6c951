// Streams and events.
#include "bench/nccl/cpu_device/calls.h"

using namespace pacecar::nccl::cpu;

CPU_DEVICE_EXPORT int cuStreamCreate(void** stream, unsigned flags) {
  constexpr unsigned kNonBlocking = 1;
  return give(stream, &current_gpu().create_stream((flags & kNonBlocking) == 0));
}

CPU_DEVICE_SAME(cudaStreamCreateWithFlags, cuStreamCreate)

CPU_DEVICE_EXPORT int cuStreamDestroy_v2(void* stream) {
  Stream& ended = stream_of(stream);
  ended.gpu().destroy(ended);
  return kSuccess;
}

CPU_DEVICE_SAME(cudaStreamDestroy, cuStreamDestroy_v2)

CPU_DEVICE_EXPORT int cuStreamSynchronize(void* stream) {
  const Stream& waited = stream_of(stream);
  waited.gpu().wait_until_idle(waited);
  return kSuccess;
}

CPU_DEVICE_SAME(cudaStreamSynchronize, cuStreamSynchronize)

CPU_DEVICE_EXPORT int cuStreamQuery(void* stream) {
  return Gpu::idle(stream_of(stream)) ? kSuccess : kNotReady;
}

CPU_DEVICE_EXPORT int cudaStreamGetId(void* stream, unsigned long long* id) {
  return give(id, stream_of(stream).id());
}

CPU_DEVICE_EXPORT int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  static_cast<Event*>(event)->hold(stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_EXPORT int cudaLaunchHostFunc(void* stream, HostFunction function, void* argument) {
  enqueue(stream_of(stream), [=] { function(argument); });
  return kSuccess;
}

CPU_DEVICE_EXPORT int cuEventCreate(void** event, unsigned) { return give(event, new Event); }

CPU_DEVICE_SAME(cudaEventCreateWithFlags, cuEventCreate)
CPU_DEVICE_EXPORT int cudaEventCreate(void** event) { return cuEventCreate(event, 0); }

CPU_DEVICE_EXPORT int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}

CPU_DEVICE_SAME(cudaEventDestroy, cuEventDestroy_v2)

CPU_DEVICE_EXPORT int cuEventRecord(void* event, void* stream) {
  static_cast<Event*>(event)->record(stream_of(stream));
  return kSuccess;
}

CPU_DEVICE_SAME(cudaEventRecord, cuEventRecord)

CPU_DEVICE_EXPORT int cuEventQuery(void* event) {
  return static_cast<Event*>(event)->reached() ? kSuccess : kNotReady;
}
CPU_DEVICE_SAME(cudaEventQuery, cuEventQuery)

CPU_DEVICE_EXPORT int cudaEventSynchronize(void* event) {
  static_cast<Event*>(event)->wait();
  return kSuccess;
}
