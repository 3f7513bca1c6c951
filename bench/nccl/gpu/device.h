// A rank's use of CUDA and NCCL: memory, one stream, one communicator. Any failure ends the program
// with one sentence on stderr, because a rank cannot continue without its peers. Needs only the
// standard library and what libraries.h loads. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/nccl/gpu/libraries.h"

namespace pacecar::nccl {

[[noreturn]] void end_with(const std::string& sentence);
void require_driver(int result, const char* what);
void require_nccl(int result, const char* what);
// The driver's text for its result.
std::string driver_error(int result);
// The driver, which is initialised, and NCCL.
void load_libraries(const std::string& nccl_file);

// `elements` floats on the GPU.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t elements);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  float* data() const { return data_; }
  size_t elements() const { return elements_; }
  // Sets every byte to 0xff: no rank sends that value.
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
  NcclCommunicator handle() const { return handle_; }
  Stream stream() const { return stream_; }

  // Waits until the stream is idle; ends the program when NCCL reports an error meanwhile.
  void wait() const;
  // Waits until every rank has called barrier().
  void barrier(DeviceBuffer& scratch) const;

 private:
  int rank_;
  int ranks_;
  NcclCommunicator handle_ = nullptr;
  Stream stream_ = nullptr;
};

}  // namespace pacecar::nccl
