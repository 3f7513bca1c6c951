// The entry points of libfabric, loaded at run time when a libfabric NIC is named. All other calls
// go through the objects' own tables of functions. And owning pointers for these objects: an
// object's parents must outlive it, so mind the order of members.
//
// Thread rule: any.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>

#include "transport/base/result.h"

namespace pacecar {

class OfiLibrary {
 public:
  // Loads the library at the first call; it stays loaded. Some of its dependencies install signal
  // handlers: the program's own are restored. Errors: kUnavailable.
  static Result<const OfiLibrary*> load(const std::string& file = "libfabric.so.1");

  // As fi_getinfo, with signals as in load(). `hints` are not changed.
  int getinfo(const fi_info* hints, fi_info** infos) const;
  fi_info* allocinfo() const { return dupinfo_(nullptr); }
  fi_info* dupinfo(const fi_info* info) const { return dupinfo_(info); }
  void freeinfo(fi_info* info) const { freeinfo_(info); }
  int fabric(fi_fabric_attr* attributes, fid_fabric** fabric) const {
    return fabric_(attributes, fabric, nullptr);
  }
  // As fi_endpoint, with signals as in load().
  int endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint) const;
  // `error` is positive.
  std::string text_of(int error) const { return strerror_(error); }
  // "1.17"
  std::string version() const;
  // Whether GPU memory can be registered by dma-buf: the library and the headers of the build are
  // of version 1.20 or later.
  bool takes_dmabufs() const;

 private:
  std::string resolve(void* library);

  decltype(&fi_getinfo) getinfo_ = nullptr;
  decltype(&fi_freeinfo) freeinfo_ = nullptr;
  decltype(&fi_dupinfo) dupinfo_ = nullptr;
  decltype(&fi_fabric) fabric_ = nullptr;
  decltype(&fi_strerror) strerror_ = nullptr;
  decltype(&fi_version) version_ = nullptr;
};

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
