// What a rank needs of CUDA and NCCL: memory, one stream, one communicator. Whatever fails ends the
// program with one sentence on stderr: a rank cannot go on without its peers. One thread uses it.
// Only the standard library beside the two, so that a bare compiler builds it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pacecar::nccl {

[[noreturn]] void end_with(const std::string& sentence);
void require(cudaError_t result, const char* what);
void require(ncclResult_t result, const char* what);

// `elements` floats on the GPU.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t elements);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  float* data() const { return data_; }
  size_t elements() const { return elements_; }
  // Every byte 0xff: no value that a rank sends.
  void poison();

 private:
  float* data_ = nullptr;
  size_t elements_;
};

void to_device(float* destination, const std::vector<float>& source, size_t elements);
void to_host(std::vector<float>& destination, const float* source, size_t elements);

// The communicator of `ranks` processes, and the stream that its operations are put on.
class Communicator {
 public:
  // Rank 0 writes the job's id to `id_file`, which the others wait for.
  Communicator(int rank, int ranks, int gpu, const std::string& id_file);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  ncclComm_t handle() const { return handle_; }
  cudaStream_t stream() const { return stream_; }

  // Until the stream has done its work; ends the program when NCCL reports an error meanwhile.
  void wait() const;
  // Until every rank is here.
  void barrier(DeviceBuffer& scratch) const;

 private:
  int rank_;
  int ranks_;
  ncclComm_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace pacecar::nccl
