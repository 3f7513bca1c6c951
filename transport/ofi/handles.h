// Owning pointers for the objects of libfabric. An object's parents must outlive it: mind the order
// of members.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>

namespace pacecar {

// A failure to close means that the device is gone, and with it the object.
struct FidDeleter {
  template <typename T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <typename T>
using FidHandle = std::unique_ptr<T, FidDeleter>;

}  // namespace pacecar
