#include "bench/nccl/gpu/device.h"

#include <dlfcn.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace pacecar::nccl {
namespace {

constexpr std::chrono::seconds kIdPatience{60};
constexpr std::chrono::milliseconds kIdPause{5};
constexpr std::chrono::microseconds kBusyPolling{100};
constexpr int kPauseShare = 64;  // of the time waited so far: the end is noticed 1.6% late at most
constexpr std::chrono::nanoseconds kLongestPause = std::chrono::milliseconds(10);

UniqueId publish_id(const std::string& file) {
  UniqueId id;
  require_nccl(nccl().unique_id(&id), "ncclGetUniqueId");
  // Written under another name and renamed, so that readers never see a partial file.
  const std::string unfinished = file + ".part";
  std::ofstream out(unfinished, std::ios::binary);
  out.write(id.internal, sizeof(id.internal));
  out.close();
  if (!out || std::rename(unfinished.c_str(), file.c_str()) != 0) {
    end_with("cannot write the job's id to " + file + ": name a folder that can be written");
  }
  return id;
}

UniqueId await_id(const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + kIdPatience;
  UniqueId id;
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof(id.internal))) return id;
    std::this_thread::sleep_for(kIdPause);
  }
  end_with("rank 0 did not write " + file + " in time: see its output");
}

DevicePointer address(const float* data) { return reinterpret_cast<DevicePointer>(data); }

// Makes the GPU's primary context current; the driver is loaded.
void use_gpu(int gpu) {
  Device device = 0;
  Context context = nullptr;
  require_driver(driver().device_get(&device, gpu), "cuDeviceGet");
  require_driver(driver().retain_context(&context, device), "cuDevicePrimaryCtxRetain");
  require_driver(driver().set_context(context), "cuCtxSetCurrent");
}

Driver loaded_driver;
Nccl loaded_nccl;

template <typename Function>
void find(void* library, const char* symbol, Function& member, std::string& missing) {
  member = reinterpret_cast<Function>(dlsym(library, symbol));
  if (member == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
}

std::string lacks(const std::string& library, const std::string& missing) {
  return missing.empty() ? "" : library + " lacks " + missing + ": bring it up to date";
}

}  // namespace

#define PACECAR_FIND(member, symbol, ...) find(library, #symbol, loaded.member, missing);

std::string load_driver() {
  void* const library = dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  Driver& loaded = loaded_driver;
  std::string missing;
  PACECAR_DRIVER_CALLS(PACECAR_FIND)
  return lacks(kDriverLibrary, missing);
}

std::string load_nccl(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  Nccl& loaded = loaded_nccl;
  std::string missing;
  find(library, "ncclGetErrorString", loaded.error_string, missing);
  PACECAR_NCCL_CALLS(PACECAR_FIND)
  return lacks(file, missing);
}

#undef PACECAR_FIND

const Driver& driver() { return loaded_driver; }
const Nccl& nccl() { return loaded_nccl; }

void end_with(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::exit(1);
}

std::string driver_error(int result) {
  const char* text = nullptr;
  driver().error_string(result, &text);
  return text ? text : "unknown error";
}

void require_driver(int result, const char* what) {
  if (result != kSuccess) end_with(std::string(what) + ": " + driver_error(result));
}

void require_nccl(int result, const char* what) {
  if (result != kSuccess) end_with(std::string(what) + ": " + nccl().error_string(result));
}

void load_libraries(const std::string& nccl_file) {
  for (const std::string& reason : {load_driver(), load_nccl(nccl_file)}) {
    if (!reason.empty()) end_with(reason);
  }
  require_driver(driver().init(0), "cuInit");
}

DeviceBuffer::DeviceBuffer(size_t elements) : elements_(elements) {
  DevicePointer memory = 0;
  require_driver(driver().allocate(&memory, elements * sizeof(float)), "cuMemAlloc");
  data_ = reinterpret_cast<float*>(memory);
}

DeviceBuffer::~DeviceBuffer() { driver().release(address(data_)); }

void DeviceBuffer::poison() {
  require_driver(driver().set_bytes(address(data_), 0xff, elements_ * sizeof(float)), "cuMemset");
}

void to_device(float* destination, const std::vector<float>& source, size_t elements) {
  require_driver(
      driver().copy_to_device(address(destination), source.data(), elements * sizeof(float)),
      "cuMemcpy to the GPU");
}

void to_host(std::vector<float>& destination, const float* source, size_t elements) {
  require_driver(
      driver().copy_to_host(destination.data(), address(source), elements * sizeof(float)),
      "cuMemcpy from the GPU");
}

Communicator::Communicator(int rank, int ranks, int gpu, const std::string& id_file)
    : rank_(rank), ranks_(ranks) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // short pauses in wait()
  use_gpu(gpu);
  const UniqueId id = rank == 0 ? publish_id(id_file) : await_id(id_file);
  require_nccl(nccl().init_rank(&handle_, ranks, id, rank), "ncclCommInitRank");
  // A blocking stream: it is ordered with the copies and the poisoning in the default stream.
  require_driver(driver().stream_create(&stream_, 0), "cuStreamCreate");
}

Communicator::~Communicator() {
  nccl().destroy(handle_);
  driver().stream_destroy(stream_);
}

void Communicator::wait() const {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const int state = driver().stream_query(stream_);
    if (state == kSuccess) return;
    if (state != kNotReady) require_driver(state, "the stream");
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start;
    if (waited < kBusyPolling) continue;
    // A machine without a GPU may have fewer processors than the ranks' threads.
    std::this_thread::sleep_for(std::min(waited / kPauseShare, kLongestPause));
    // A failure of the network is visible only here: the GPU would wait forever.
    int failure = kSuccess;
    require_nccl(nccl().async_error(handle_, &failure), "ncclCommGetAsyncError");
    require_nccl(failure, "the network failed under an operation");
  }
}

void Communicator::barrier(DeviceBuffer& scratch) const {
  require_nccl(nccl().all_reduce(scratch.data(), scratch.data(), 1, kFloat, kSum, handle_, stream_),
               "the barrier's ncclAllReduce");
  wait();
}

}  // namespace pacecar::nccl
