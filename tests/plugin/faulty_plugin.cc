// A net plugin that breaks the rule of check-plugin that FAULT names, so that each rule is seen to
// fail: the table of REAL_PLUGIN with the functions replaced that this rule needs. FAULT=reluctant
// breaks no rule: it posts a send only within test, and refuses more sends than NCCL has in flight.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "net_plugin/abi/tables.h"

using namespace pacecar::nccl;

extern "C" {
[[gnu::visibility("default")]] NetV12 ncclNetPlugin_v12;
}

namespace {

NetV12 real;
std::atomic<int> calls{0};
uint8_t* posted = nullptr;  // the buffer of the last receive
std::mutex receives_mutex;
std::map<void*, int> receives;  // posted sizes of requests

void block() {
  for (;;) pause();
}

NcclResult init_once(void** context, uint64_t id, CommConfig* config, Logger logger,
                     ProfilerCallback profiler) {
  if (calls++ > 0) return NcclResult::kSystemError;
  return real.init(context, id, config, logger, profiler);
}
NcclResult finalize_something(void* context) {
  return context == nullptr ? NcclResult::kInternalError : real.finalize(context);
}
NcclResult leave_out_latency(int device, NetPropertiesV12* properties) {
  const float before = properties->latency;
  const NcclResult result = real.getProperties(device, properties);
  properties->latency = before;
  return result;
}
NcclResult no_receives(int device, NetPropertiesV12* properties) {
  const NcclResult result = real.getProperties(device, properties);
  properties->max_receives = 0;
  return result;
}
NcclResult no_speed(int device, NetPropertiesV12* properties) {
  const NcclResult result = real.getProperties(device, properties);
  properties->speed = 0;
  return result;
}
NcclResult two_devices(int* count) {
  *count = 2;
  return NcclResult::kSuccess;
}
NcclResult the_same_device(int, NetPropertiesV12* properties) {
  return real.getProperties(0, properties);
}
NcclResult long_handle(void* context, int device, void* handle, void** listening) {
  static_cast<uint8_t*>(handle)[kHandleBytes] = 0;
  return real.listen(context, device, handle, listening);
}
NcclResult connect_blocks(void* context, int device, void* handle, void** comm,
                          DeviceHandle** device_handle) {
  NcclResult result = NcclResult::kSuccess;
  do {
    result = real.connect(context, device, handle, comm, device_handle);
  } while (result == NcclResult::kSuccess && *comm == nullptr);
  return result;
}
NcclResult few_connections(void* context, int device, void* handle, void** comm,
                           DeviceHandle** device_handle) {
  const NcclResult result = real.connect(context, device, handle, comm, device_handle);
  if (*comm != nullptr && ++calls > 8) return NcclResult::kSystemError;
  return result;
}
NcclResult connect_in_one_thread(void* context, int device, void* handle, void** comm,
                                 DeviceHandle** device_handle) {
  static const std::thread::id own = std::this_thread::get_id();
  if (std::this_thread::get_id() != own) return NcclResult::kInternalError;
  return real.connect(context, device, handle, comm, device_handle);
}
NcclResult accept_once(void* listening, void** comm, DeviceHandle** device_handle) {
  static std::mutex mutex;
  static std::set<void*> used;
  const std::lock_guard lock(mutex);
  if (used.contains(listening)) return NcclResult::kInternalError;
  const NcclResult result = real.accept(listening, comm, device_handle);
  if (*comm != nullptr) used.insert(listening);
  return result;
}
NcclResult leaking_accept(void* listening, void** comm, DeviceHandle** device_handle) {
  const NcclResult result = real.accept(listening, comm, device_handle);
  if (*comm != nullptr && open("/dev/null", O_RDONLY) < 0) return NcclResult::kSystemError;
  return result;
}
NcclResult registering_disturbs(void* comm, void* data, size_t size, int type, void** memory) {
  ++calls;
  return real.regMr(comm, data, size, type, memory);
}
NcclResult disturbed_send(void* comm, void* data, size_t size, int tag, void* memory, void* handle,
                          void** request) {
  if (calls > 2) static_cast<uint8_t*>(data)[0] ^= 1;
  return real.isend(comm, data, size, tag, memory, handle, request);
}
NcclResult one_byte_more(void* request, int* done, int* sizes) {
  const NcclResult result = real.test(request, done, sizes);
  if (*done == 1) ++sizes[0];
  return result;
}
NcclResult crashing_send(void*, void*, size_t, int, void*, void*, void**) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit instead
  raise(SIGSEGV);
  return NcclResult::kSuccess;
}
NcclResult no_empty_send(void* comm, void* data, size_t size, int tag, void* memory, void* handle,
                         void** request) {
  if (size == 0) return NcclResult::kInvalidArgument;
  return real.isend(comm, data, size, tag, memory, handle, request);
}
NcclResult noting_receive(void* comm, int count, void** data, size_t* sizes, int* tags,
                          void** memories, void** handles, void** request) {
  const NcclResult result = real.irecv(comm, count, data, sizes, tags, memories, handles, request);
  const std::lock_guard lock(receives_mutex);
  if (*request != nullptr) receives[*request] = static_cast<int>(sizes[0]);
  posted = static_cast<uint8_t*>(data[0]);
  return result;
}
NcclResult posted_sizes(void* request, int* done, int* sizes) {
  const NcclResult result = real.test(request, done, sizes);
  const std::lock_guard lock(receives_mutex);
  if (*done == 1 && receives.contains(request)) sizes[0] = receives[request];
  return result;
}
NcclResult counting_receive(void* comm, int count, void** data, size_t* sizes, int* tags,
                            void** memories, void** handles, void** request) {
  const NcclResult result = real.irecv(comm, count, data, sizes, tags, memories, handles, request);
  const std::lock_guard lock(receives_mutex);
  if (*request != nullptr) receives[*request] = count;
  return result;
}
NcclResult mixed_up_sizes(void* request, int* done, int* sizes) {
  const NcclResult result = real.test(request, done, sizes);
  const std::lock_guard lock(receives_mutex);
  if (*done == 1 && receives.contains(request)) std::swap(sizes[0], sizes[receives[request] - 1]);
  return result;
}
NcclResult shallow_receive(void* comm, int count, void** data, size_t* sizes, int* tags,
                           void** memories, void** handles, void** request) {
  *request = nullptr;
  if (++calls > 16) return NcclResult::kSuccess;
  return real.irecv(comm, count, data, sizes, tags, memories, handles, request);
}
NcclResult silent_when_full(void* comm, int count, void** data, size_t* sizes, int* tags,
                            void** memories, void** handles, void** request) {
  void* own = nullptr;
  const NcclResult result = real.irecv(comm, count, data, sizes, tags, memories, handles, &own);
  if (own != nullptr) *request = own;
  return result;
}
NcclResult no_hints(void* comm, int count, void** data, size_t* sizes, int* tags, void** memories,
                    void** handles, void** request) {
  if (*request == reinterpret_cast<void*>(kOptionalCompletion)) return NcclResult::kInternalError;
  return real.irecv(comm, count, data, sizes, tags, memories, handles, request);
}
NcclResult reversed_tags(void* comm, int count, void** data, size_t* sizes, int* tags,
                         void** memories, void** handles, void** request) {
  std::array<int, 8> turned{};
  for (int i = 0; i < count; ++i) turned[static_cast<size_t>(i)] = tags[count - 1 - i];
  return real.irecv(comm, count, data, sizes, turned.data(), memories, handles, request);
}
NcclResult flags_first(void* comm, void* data, size_t size, int tag, void* memory, void* handle,
                       void** request) {
  constexpr size_t kLine = 128;
  for (size_t line = 0; posted != nullptr && line + kLine <= size; line += kLine) {
    const size_t flag = line + kLine - sizeof(uint64_t);
    std::memcpy(posted + flag, static_cast<uint8_t*>(data) + flag, sizeof(uint64_t));
  }
  usleep(200);
  return real.isend(comm, data, size, tag, memory, handle, request);
}
NcclResult init_without_flags(void** context, uint64_t id, CommConfig* config, Logger logger,
                              ProfilerCallback profiler) {
  setenv("NCCL_PROTO", "simple", 1);
  return real.init(context, id, config, logger, profiler);
}
NcclResult send_nothing(void*, void*, size_t, int, void*, void*, void** request) {
  *request = &calls;
  return NcclResult::kSuccess;
}
NcclResult done_at_once(void* request, int* done, int* sizes) {
  if (request != &calls) return real.test(request, done, sizes);
  *done = 1;
  return NcclResult::kSuccess;
}
NcclResult damaging_send(void* comm, void* data, size_t size, int tag, void* memory, void* handle,
                         void** request) {
  if (size > 0) ++*static_cast<uint8_t*>(data);
  return real.isend(comm, data, size, tag, memory, handle, request);
}

struct Waiting {
  void* comm;
  void* data;
  size_t size;
  int tag;
  void* memory;
  void* request = nullptr;  // the real one, since the first test
};
constexpr size_t kMostRequests = 32;
std::mutex waiting_mutex;
std::set<void*> waiting;

NcclResult reluctant_send(void* comm, void* data, size_t size, int tag, void* memory, void*,
                          void** request) {
  const std::scoped_lock lock(waiting_mutex);
  if (waiting.size() == kMostRequests) return NcclResult::kInternalError;
  *request = new Waiting{comm, data, size, tag, memory};
  waiting.insert(*request);
  return NcclResult::kSuccess;
}
NcclResult reluctant_test(void* request, int* done, int* sizes) {
  const std::scoped_lock lock(waiting_mutex);
  if (!waiting.contains(request)) return real.test(request, done, sizes);
  auto* const send = static_cast<Waiting*>(request);
  *done = 0;
  if (send->request == nullptr) {
    const NcclResult result = real.isend(send->comm, send->data, send->size, send->tag,
                                         send->memory, nullptr, &send->request);
    if (result != NcclResult::kSuccess || send->request == nullptr) return result;
  }
  const NcclResult result = real.test(send->request, done, sizes);
  if (*done == 0) return result;
  waiting.erase(request);
  delete send;
  return result;
}

NcclResult no_close_in_flight(void*) { return NcclResult::kInternalError; }
NcclResult close_blocks(void*) {
  block();
  return NcclResult::kSuccess;
}
NcclResult no_errors(void* request, int* done, int* sizes) {
  if (real.test(request, done, sizes) != NcclResult::kSuccess) block();
  return NcclResult::kSuccess;
}

[[gnu::constructor]] void choose() {
  const char* const path = std::getenv("REAL_PLUGIN");
  const char* const named = std::getenv("FAULT");
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || named == nullptr) return;
  real = *static_cast<const NetV12*>(dlsym(library, "ncclNetPlugin_v12"));
  NetV12& net = ncclNetPlugin_v12 = real;
  const std::string_view fault = named;
  if (fault == "init" || fault == "two-communicators") net.init = init_once;
  if (fault == "finalize-null") net.finalize = finalize_something;
  if (fault == "properties-filled") net.getProperties = leave_out_latency;
  if (fault == "properties") net.getProperties = no_receives;
  if (fault == "names") net.devices = two_devices, net.getProperties = the_same_device;
  if (fault == "handle") net.listen = long_handle;
  if (fault == "non-blocking") net.connect = connect_blocks;
  if (fault == "connections") net.connect = few_connections;
  if (fault == "reopen") net.accept = leaking_accept;
  if (fault == "register-race") net.regMr = registering_disturbs, net.isend = disturbed_send;
  if (fault == "sizes") net.test = one_byte_more;
  if (fault == "crash") net.isend = crashing_send;
  if (fault == "damage") net.isend = damaging_send;
  if (fault == "empty") net.isend = no_empty_send;
  if (fault == "short") net.irecv = noting_receive, net.test = posted_sizes;
  if (fault == "groups") net.irecv = counting_receive, net.test = mixed_up_sizes;
  if (fault == "crowd") net.connect = connect_in_one_thread;
  if (fault == "listen-again") net.accept = accept_once;
  if (fault == "close-in-flight") net.closeRecv = no_close_in_flight;
  if (fault == "depth") net.irecv = shallow_receive;
  if (fault == "full") net.irecv = silent_when_full;
  if (fault == "reluctant") {
    net.isend = reluctant_send, net.test = reluctant_test, net.getProperties = no_speed;
  }
  if (fault == "optional-completion") net.irecv = no_hints;
  if (fault == "tags") net.irecv = reversed_tags;
  if (fault == "no-flags") net.init = init_without_flags;
  if (fault == "flags" || fault == "no-flags") net.irecv = noting_receive, net.isend = flags_first;
  if (fault == "unattended") net.isend = send_nothing, net.test = done_at_once;
  if (fault == "abort") net.closeSend = close_blocks;
  if (fault == "dead-receiver" || fault == "dead-sender") net.test = no_errors;
}

}  // namespace
