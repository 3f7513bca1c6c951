#include "tests/nccl/buffer.h"

#include <map>

#include "bench/nccl/gpu/device.h"

namespace pacecar::nccl_test {

using nccl::driver;
using nccl::require_driver;
using nccl::require_nccl;

BufferKind buffer_kind(const std::string& name) {
  static const std::map<std::string, BufferKind> kinds{{"", BufferKind::kPlain},
                                                       {"registered", BufferKind::kRegistered},
                                                       {"of_nccl", BufferKind::kOfNccl},
                                                       {"window", BufferKind::kWindow},
                                                       {"symmetric", BufferKind::kSymmetricWindow}};
  const auto found = kinds.find(name);
  if (found == kinds.end()) nccl::end_with("there is no buffer that is " + name);
  return found->second;
}

Buffer::Buffer(NcclCommunicator communicator, BufferKind kind, size_t bytes)
    : communicator_(communicator), kind_(kind), bytes_(bytes) {
  void* memory = nullptr;
  if (kind >= BufferKind::kOfNccl) {
    require_nccl(more().allocate(&memory, bytes), "ncclMemAlloc");
  } else {
    nccl::DevicePointer pointer = 0;
    require_driver(driver().allocate(&pointer, bytes), "cuMemAlloc");
    memory = reinterpret_cast<void*>(pointer);
  }
  data_ = static_cast<char*>(memory);
  if (kind >= BufferKind::kWindow) {
    const int symmetric = kind == BufferKind::kSymmetricWindow ? 1 : 0;
    require_nccl(more().register_window(communicator, data_, bytes, &window_, symmetric),
                 "ncclCommWindowRegister");
  } else if (kind != BufferKind::kPlain) {
    require_nccl(more().register_buffer(communicator, data_, bytes, &registration_),
                 "ncclCommRegister");
  }
}

void Buffer::poison() {
  require_driver(driver().set_bytes(reinterpret_cast<nccl::DevicePointer>(data_), 0xff, bytes_),
                 "cuMemset");
}

void Buffer::release() {
  if (window_ != nullptr) {
    require_nccl(more().deregister_window(communicator_, window_), "ncclCommWindowDeregister");
  }
  if (registration_ != nullptr) {
    require_nccl(more().deregister_buffer(communicator_, registration_), "ncclCommDeregister");
  }
  if (kind_ >= BufferKind::kOfNccl) {
    require_nccl(more().release(data_), "ncclMemFree");
  } else {
    require_driver(driver().release(reinterpret_cast<nccl::DevicePointer>(data_)), "cuMemFree");
  }
}

}  // namespace pacecar::nccl_test
