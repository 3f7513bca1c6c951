#include "bench/nccl/gpu/device.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace pacecar::nccl {
namespace {

constexpr std::chrono::seconds kIdPatience{60};
constexpr std::chrono::milliseconds kIdPause{5};
constexpr uint32_t kPollsPerErrorCheck = 4096;

ncclUniqueId publish_id(const std::string& file) {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  // Under its name only when it is whole.
  const std::string unfinished = file + ".part";
  std::ofstream out(unfinished, std::ios::binary);
  out.write(id.internal, sizeof(id.internal));
  out.close();
  if (!out || std::rename(unfinished.c_str(), file.c_str()) != 0) {
    end_with("cannot write the job's id to " + file + ": name a folder that can be written");
  }
  return id;
}

ncclUniqueId await_id(const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + kIdPatience;
  ncclUniqueId id;
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof(id.internal))) return id;
    std::this_thread::sleep_for(kIdPause);
  }
  end_with("rank 0 did not write " + file + " in time: see what it says");
}

}  // namespace

void end_with(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::exit(1);
}

void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) end_with(std::string(what) + ": " + cudaGetErrorString(result));
}

void require(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) end_with(std::string(what) + ": " + ncclGetErrorString(result));
}

DeviceBuffer::DeviceBuffer(size_t elements) : elements_(elements) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, elements * sizeof(float)), "cudaMalloc");
  data_ = static_cast<float*>(memory);
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

void DeviceBuffer::poison() {
  require(cudaMemset(data_, 0xff, elements_ * sizeof(float)), "cudaMemset");
}

void to_device(float* destination, const std::vector<float>& source, size_t elements) {
  require(cudaMemcpy(destination, source.data(), elements * sizeof(float), cudaMemcpyHostToDevice),
          "cudaMemcpy to the GPU");
}

void to_host(std::vector<float>& destination, const float* source, size_t elements) {
  require(cudaMemcpy(destination.data(), source, elements * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy from the GPU");
}

Communicator::Communicator(int rank, int ranks, int gpu, const std::string& id_file)
    : rank_(rank), ranks_(ranks) {
  require(cudaSetDevice(gpu), "cudaSetDevice");
  const ncclUniqueId id = rank == 0 ? publish_id(id_file) : await_id(id_file);
  require(ncclCommInitRank(&handle_, ranks, id, rank), "ncclCommInitRank");
  // An ordinary stream: it waits for the copies and the poison before it, and they for it.
  require(cudaStreamCreate(&stream_), "cudaStreamCreate");
}

Communicator::~Communicator() {
  ncclCommDestroy(handle_);
  cudaStreamDestroy(stream_);
}

void Communicator::wait() const {
  for (uint32_t polls = 1;; ++polls) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) require(state, "the stream");
    if (polls % kPollsPerErrorCheck != 0) continue;
    // What fails on the network is told here only: the GPU waits for ever.
    ncclResult_t failure = ncclSuccess;
    require(ncclCommGetAsyncError(handle_, &failure), "ncclCommGetAsyncError");
    require(failure, "the network failed under an operation");
  }
}

void Communicator::barrier(DeviceBuffer& scratch) const {
  require(ncclAllReduce(scratch.data(), scratch.data(), 1, ncclFloat, ncclSum, handle_, stream_),
          "the barrier's ncclAllReduce");
  wait();
}

}  // namespace pacecar::nccl
