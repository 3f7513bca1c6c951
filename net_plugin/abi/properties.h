// A device's properties, by version. Speed is in Mb/s, latency in microseconds, sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar::nccl {

// Members mean the same in all versions:
//   name                    unique per device
//   pci_path                below /sys; nullptr for a device that is not on PCI
//   registration_is_global  a registration serves every connection of the device
//   latency                 0: unknown, NCCL takes its own figure
//   max_receives            buffers of one receive
//   rail, plane             of the network that the device is on; kUndefined: unknown

template <int kDevices>
struct VirtualDevice {
  int count;
  int devices[kDevices];
};
using VirtualDeviceV9 = VirtualDevice<4>;  // to version 11
using VirtualDeviceV12 = VirtualDevice<8>;

struct NetPropertiesV6 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int speed;
  int port;
  float latency;
  int max_connections;
  int max_receives;
};

struct NetPropertiesV7 : NetPropertiesV6 {
  int device_type;
  int device_version;
};

struct NetPropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed;
  int port;
  float latency;
  int max_connections;
  int max_receives;
  int device_type;
  int device_version;
};

template <typename VirtualDevice>
struct NetPropertiesV9V12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_connections;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice virtual_device;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
};
using NetPropertiesV9 = NetPropertiesV9V12<VirtualDeviceV9>;  // and version 10
struct NetPropertiesV11 : NetPropertiesV9 {
  int max_multi_request_size;
};
struct NetPropertiesV12 : NetPropertiesV9V12<VirtualDeviceV12> {
  int max_multi_request_size;
  int16_t rail;
  int16_t plane;
};

static_assert(sizeof(VirtualDeviceV9) == 20 && sizeof(VirtualDeviceV12) == 36);
static_assert(sizeof(NetPropertiesV6) == 48);
static_assert(sizeof(NetPropertiesV7) == 56);
static_assert(sizeof(NetPropertiesV8) == 64);
static_assert(sizeof(NetPropertiesV9) == 104);
static_assert(sizeof(NetPropertiesV11) == 112);
static_assert(sizeof(NetPropertiesV12) == 128);
static_assert(offsetof(NetPropertiesV6, speed) == 28);
static_assert(offsetof(NetPropertiesV6, max_receives) == 44);
static_assert(offsetof(NetPropertiesV8, registration_is_global) == 28);
static_assert(offsetof(NetPropertiesV8, device_version) == 56);
static_assert(offsetof(NetPropertiesV9, pci_path) == 8 && offsetof(NetPropertiesV9, guid) == 16);
static_assert(offsetof(NetPropertiesV9, pointer_support) == 24);
static_assert(offsetof(NetPropertiesV9, registration_is_global) == 28);
static_assert(offsetof(NetPropertiesV9, force_flush) == 32);
static_assert(offsetof(NetPropertiesV9, speed) == 36 && offsetof(NetPropertiesV9, port) == 40);
static_assert(offsetof(NetPropertiesV9, latency) == 44);
static_assert(offsetof(NetPropertiesV9, max_connections) == 48);
static_assert(offsetof(NetPropertiesV9, max_receives) == 52);
static_assert(offsetof(NetPropertiesV9, device_type) == 56);
static_assert(offsetof(NetPropertiesV9, device_version) == 60);
static_assert(offsetof(NetPropertiesV9, virtual_device) == 64);
static_assert(offsetof(NetPropertiesV9, max_p2p_bytes) == 88);
static_assert(offsetof(NetPropertiesV9, max_collective_bytes) == 96);
static_assert(offsetof(NetPropertiesV9V12<VirtualDeviceV12>, max_p2p_bytes) == 104);
static_assert(sizeof(NetPropertiesV9V12<VirtualDeviceV12>) == 120);

}  // namespace pacecar::nccl
