// The members that the tables of all versions share.
#pragma once

#include "net_plugin/device_properties.h"
#include "net_plugin/entry_points.h"

namespace pacecar::plugin {

// Left out on purpose: device offload, which the properties say we do not have; NCCL asks before it
// calls.
template <typename Net>
constexpr Net common_table() {
  Net net{};
  net.name = "Pacecar";
  net.devices = devices;
  net.getProperties = get_properties;
  net.regMrDmaBuf = register_dmabuf;
  net.deregMr = deregister_memory;
  net.iflush = iflush;
  net.test = test;
  net.closeSend = close_connection;
  net.closeRecv = close_connection;
  net.closeListen = close_listen;
  if constexpr (requires { net.makeVDevice; }) net.makeVDevice = make_virtual_device;
  return net;
}

}  // namespace pacecar::plugin
