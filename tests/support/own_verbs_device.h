// The verbs device on the loopback interface, opened as a program opens it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdlib>

namespace pacecar::test {

class OwnVerbsDevice {
 public:
  OwnVerbsDevice() {
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    list_ = ibv_get_device_list(nullptr);
    context_ = list_ != nullptr && list_[0] != nullptr ? ibv_open_device(list_[0]) : nullptr;
  }
  ~OwnVerbsDevice() {
    if (context_ != nullptr) ibv_close_device(context_);
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  OwnVerbsDevice(const OwnVerbsDevice&) = delete;
  OwnVerbsDevice& operator=(const OwnVerbsDevice&) = delete;
  // nullptr when the device cannot be opened.
  ibv_context* context() { return context_; }

 private:
  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
};

}  // namespace pacecar::test
