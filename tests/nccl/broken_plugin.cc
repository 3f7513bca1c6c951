// A net plugin that hands NCCL's calls to the one that BROKEN_PLUGIN names, and breaks what it
// answers in the way that BROKEN names: whether NCCL and the checks of tests/nccl notice it. What
// arrives in a GPU's memory is hidden until NCCL flushes it, as writes over PCIe may be; all faults
// but that of the flush and "size is 0" need messages in the host's memory. Each connection is used
// by one thread.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "net_plugin/abi/tables.h"

namespace pacecar::nccl_test {
namespace {

using nccl::NcclResult;

bool breaks(std::string_view what) {
  static const char* const chosen = std::getenv("BROKEN");
  return chosen != nullptr && what == chosen;
}

// Most faults are in one of seven calls, so that jobs start.
bool breaks_now(std::string_view what) {
  static std::atomic<unsigned> calls{0};
  return breaks(what) && ++calls % 7 == 0;
}

const nccl::NetV11& whole() {
  static const nccl::NetV11* const table = [] {
    const char* const file = std::getenv("BROKEN_PLUGIN");
    void* const library = dlopen(file == nullptr ? "" : file, RTLD_NOW | RTLD_LOCAL);
    const void* const found = library == nullptr ? nullptr : dlsym(library, "ncclNetPlugin_v11");
    if (found == nullptr) {
      std::fprintf(stderr, "BROKEN_PLUGIN does not name a net plugin: %s\n", dlerror());
      std::abort();
    }
    return static_cast<const nccl::NetV11*>(found);
  }();
  return *table;
}

// Copies between GPU memory and host memory, on a stream of their own while kernels run.
class GpuCopies {
 public:
  static GpuCopies& of_thread() {
    static thread_local GpuCopies copies;
    return copies;
  }
  void to_host(void* host, const void* gpu, size_t bytes) {
    to_host_(host, gpu, bytes, stream_);
    wait_(stream_);
  }
  void to_gpu(void* gpu, const void* host, size_t bytes) {
    to_gpu_(gpu, host, bytes, stream_);
    wait_(stream_);
  }

 private:
  GpuCopies() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*create)(void**, unsigned) = nullptr;
    find(driver, "cuStreamCreate", create);
    find(driver, "cuStreamSynchronize", wait_);
    find(driver, "cuMemcpyDtoHAsync_v2", to_host_);
    find(driver, "cuMemcpyHtoDAsync_v2", to_gpu_);
    constexpr unsigned kBesideOthers = 1;
    create(&stream_, kBesideOthers);
  }
  template <typename Function>
  static void find(void* driver, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(driver, name));
  }

  void* stream_ = nullptr;
  int (*wait_)(void*) = nullptr;
  int (*to_host_)(void*, const void*, size_t, void*) = nullptr;
  int (*to_gpu_)(void*, const void*, size_t, void*) = nullptr;
};

struct Request {
  void* inner = nullptr;
  bool receives = false;
  bool in_gpu = false;
  char* data = nullptr;
  size_t bytes = 0;
};

// Requests that were reported as done too early.
thread_local std::vector<void*> t_unfinished;
// A part of a message that reaches the buffer late.
struct Late {
  char* data = nullptr;
  std::vector<char> bytes;
};
thread_local Late t_late;
thread_local std::vector<Late> t_unflushed;
// Registrations of GPU memory, which another thread makes.
std::mutex g_mutex;
std::unordered_set<void*> g_gpu_memory;

bool in_gpu(void* memory) {
  const std::lock_guard lock(g_mutex);
  return g_gpu_memory.contains(memory);
}
// A send that leaves after the next one.
struct Held {
  void* comm = nullptr;
  void* data = nullptr;
  size_t size = 0;
  int tag = 0;
  void* memory = nullptr;
};
thread_local Held t_held;

void finish_old_ones() {
  std::erase_if(t_unfinished, [](void* request) {
    int done = 0;
    std::array<int, 8> sizes{};
    return whole().test(request, &done, sizes.data()) != NcclResult::kSuccess || done != 0;
  });
  if (t_late.data != nullptr) std::memcpy(t_late.data, t_late.bytes.data(), t_late.bytes.size());
  t_late = {};
}

NcclResult listen(void* context, int device, void* handle, void** listen_comm) {
  const NcclResult result = whole().listen(context, device, handle, listen_comm);
  if (breaks("handle is changed")) static_cast<char*>(handle)[40] ^= 1;
  return result;
}

NcclResult connect(void* context, int device, void* handle, void** send_comm,
                   nccl::DeviceHandle** device_handle) {
  if (breaks("rank ends as it connects")) raise(SIGKILL);
  return whole().connect(context, device, handle, send_comm, device_handle);
}

NcclResult accept(void* listen_comm, void** receive_comm, nccl::DeviceHandle** device_handle) {
  if (!breaks("nobody is accepted"))
    return whole().accept(listen_comm, receive_comm, device_handle);
  *receive_comm = nullptr;
  return NcclResult::kSuccess;
}

NcclResult register_memory(void* comm, void* data, size_t size, int type, void** memory) {
  if (breaks("registration is too short")) size /= 2;
  const NcclResult result = whole().regMr(comm, data, size, type, memory);
  if (breaks("registration ends at once")) whole().deregMr(comm, *memory);
  constexpr int kCuda = 2;
  const std::lock_guard lock(g_mutex);
  g_gpu_memory.erase(*memory);  // of an earlier one
  if (type == kCuda) g_gpu_memory.insert(*memory);
  return result;
}

NcclResult isend(void* comm, void* data, size_t size, int tag, void* memory, void* profiler,
                 void** request) {
  finish_old_ones();
  *request = nullptr;
  if (breaks_now("send fails")) return NcclResult::kSystemError;
  auto* const made = new Request{.data = static_cast<char*>(data), .bytes = size};
  if (breaks_now("message is lost")) {
    *request = made;
    return NcclResult::kSuccess;
  }
  if (t_held.comm == nullptr && breaks_now("messages change places")) {
    t_held = {comm, data, size, tag, memory};
    *request = made;
    return NcclResult::kSuccess;
  }
  const size_t sent = size > 8 && breaks_now("end of the message is missing") ? size - 8 : size;
  const NcclResult result = whole().isend(comm, data, sent, tag, memory, profiler, &made->inner);
  if (result != NcclResult::kSuccess || made->inner == nullptr) {
    delete made;
    return result;
  }
  void* again = nullptr;
  if (breaks_now("message comes twice")) {
    whole().isend(comm, data, size, tag, memory, nullptr, &again);
  }
  if (t_held.comm == comm) {
    whole().isend(comm, t_held.data, t_held.size, t_held.tag, t_held.memory, nullptr, &again);
    t_held = {};
  }
  if (again != nullptr) t_unfinished.push_back(again);
  if (breaks_now("request of a send is not returned")) {
    t_unfinished.push_back(made->inner);
    delete made;
    return result;
  }
  *request = made;
  return result;
}

NcclResult irecv(void* comm, int count, void** data, size_t* sizes, int* tags, void** memories,
                 void** profilers, void** request) {
  finish_old_ones();
  auto* const made = new Request{.receives = true,
                                 .in_gpu = in_gpu(memories[0]),
                                 .data = static_cast<char*>(data[0]),
                                 .bytes = count == 1 ? sizes[0] : 0};
  const NcclResult result =
      whole().irecv(comm, count, data, sizes, tags, memories, profilers, &made->inner);
  *request = nullptr;
  if (result != NcclResult::kSuccess || made->inner == nullptr) {
    delete made;
    return result;
  }
  if (breaks_now("request of a receive is not returned")) {
    t_unfinished.push_back(made->inner);
    delete made;
    return result;
  }
  *request = made;
  return result;
}

// The bytes of a message that has arrived.
void spoil(char* data, size_t bytes) {
  if (bytes >= 16 && breaks_now("byte is changed")) data[bytes / 2] ^= 0x10;
  if (bytes >= 16 && breaks_now("halves change places")) {
    const std::vector<char> first(data, data + bytes / 2);
    std::memmove(data, data + bytes - bytes / 2, bytes / 2);
    std::memcpy(data + bytes - bytes / 2, first.data(), bytes / 2);
  }
  if (bytes >= 16 && breaks_now("end of the message is late")) {
    char* const end = data + bytes / 2;
    t_late = {end, {end, data + bytes}};
    std::memset(end, 0, bytes - bytes / 2);
  }
}

void hide_until_flush(char* data, size_t bytes) {
  const std::vector<char> nothing(bytes);
  Late late{data, nothing};
  GpuCopies::of_thread().to_host(late.bytes.data(), data, bytes);
  GpuCopies::of_thread().to_gpu(data, nothing.data(), bytes);
  t_unflushed.push_back(std::move(late));
}

NcclResult test(void* request, int* done, int* sizes) {
  auto* const tested = static_cast<Request*>(request);
  finish_old_ones();
  if (breaks_now("test fails")) return NcclResult::kRemoteError;
  NcclResult result = NcclResult::kSuccess;
  *done = 1;  // of one without `inner`, which was never sent
  if (tested->inner != nullptr) result = whole().test(tested->inner, done, sizes);
  const bool early = *done == 0 && (tested->receives ? breaks_now("receive is done too early")
                                                     : breaks("send is done too early"));
  if (early) {
    t_unfinished.push_back(tested->inner);
    *done = 1;
    if (sizes != nullptr && tested->receives) sizes[0] = static_cast<int>(tested->bytes);
  }
  if (*done == 0) return result;
  if (tested->receives && sizes != nullptr && result == NcclResult::kSuccess) {
    const auto arrived = static_cast<size_t>(sizes[0]);
    if (tested->in_gpu) {
      hide_until_flush(tested->data, arrived);
    } else if (!early && tested->bytes > 0) {
      spoil(tested->data, arrived);
    }
    if (breaks_now("size is too large")) sizes[0] += 64;
    if (breaks_now("size is 0")) sizes[0] = 0;
  }
  delete tested;
  return result;
}

NcclResult iflush(void* comm, int count, void** data, int* sizes, void** memories, void** request) {
  *request = nullptr;
  if (breaks("flush is left out")) return NcclResult::kSuccess;
  std::erase_if(t_unflushed, [&](const Late& late) {
    if (std::find(data, data + count, late.data) == data + count) return false;
    GpuCopies::of_thread().to_gpu(late.data, late.bytes.data(), late.bytes.size());
    return true;
  });
  auto* const made = new Request;
  const NcclResult result = whole().iflush(comm, count, data, sizes, memories, &made->inner);
  if (result == NcclResult::kSuccess && made->inner != nullptr) {
    *request = made;
  } else {
    delete made;
  }
  return result;
}

nccl::NetV11 broken() {
  nccl::NetV11 table = whole();
  table.listen = listen;
  table.connect = connect;
  table.accept = accept;
  table.regMr = register_memory;
  table.isend = isend;
  table.irecv = irecv;
  table.iflush = iflush;
  table.test = test;
  return table;
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const nccl::NetV11 ncclNetPlugin_v11 = broken();
}

}  // namespace pacecar::nccl_test
