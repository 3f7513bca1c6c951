// A buffer on the GPU that a program allocates and registers in one of the ways that NCCL has.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>

#include "tests/nccl/more_calls.h"

namespace pacecar::nccl_test {

enum class BufferKind {
  kPlain,
  kRegistered,       // by ncclCommRegister
  kOfNccl,           // by ncclMemAlloc, and registered
  kWindow,           // by ncclMemAlloc, and a window
  kSymmetricWindow,  // of which all ranks' have the same offsets
};

// "" is a plain buffer; an unknown name ends the program with a message.
BufferKind buffer_kind(const std::string& name);

class Buffer {
 public:
  // All ranks make theirs together.
  Buffer(NcclCommunicator communicator, BufferKind kind, size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() const { return data_; }
  void* window() const { return window_; }  // nullptr where NCCL has none
  // Sets every byte to 0xff, which no rank sends.
  void poison();
  // What NCCL has of it ends, and the memory.
  void release();

 private:
  const NcclCommunicator communicator_;
  const BufferKind kind_;
  const size_t bytes_;
  char* data_ = nullptr;
  void* registration_ = nullptr;
  void* window_ = nullptr;
};

}  // namespace pacecar::nccl_test
