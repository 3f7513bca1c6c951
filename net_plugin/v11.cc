// Version 11 of the table, NCCL 2.28 to 2.30.
#include <algorithm>

#include "net_plugin/entry_points.h"
#include "net_plugin/nccl_net_abi.h"

namespace pacecar::plugin {
namespace {

using nccl::NcclResult;
using nccl::NetPropertiesV11;

// NCCL searches its channels by speed, so that 0 is not an answer. A virtual device does not know
// its speed; 10 Gb/s is what NCCL itself assumes for such a one.
constexpr uint64_t kUnknownSpeedMbps = 10'000;

NcclResult init_v11(void** context, uint64_t /*comm_id*/, nccl::CommConfigV11* config,
                    nccl::Logger logger, nccl::ProfilerCallback /*profiler*/) {
  return init(context, logger, config == nullptr ? nccl::kUndefined : config->traffic_class);
}

NcclResult get_properties_v11(int device, NetPropertiesV11* properties) {
  *properties = {};
  const NicInfo* nic = nullptr;
  const NcclResult result = nic_info(device, &nic);
  if (result != NcclResult::kSuccess) return result;

  constexpr uint64_t kIntMax = INT32_MAX;
  properties->name = const_cast<char*>(nic->name.c_str());
  properties->pci_path = nic->pci_path.empty() ? nullptr : const_cast<char*>(nic->pci_path.c_str());
  properties->guid = nic->guid;
  properties->pointer_support = nccl::kPointerHost;
  properties->registration_is_global = 1;  // memory is registered with the NIC
  properties->force_flush = 0;
  properties->speed = static_cast<int>(
      std::min(nic->speed_mbps == 0 ? kUnknownSpeedMbps : nic->speed_mbps, kIntMax));
  properties->port = 1;
  properties->latency = 0;
  properties->max_connections = static_cast<int>(std::min<uint64_t>(nic->max_connections, kIntMax));
  properties->max_receives = kMaxReceiveBuffers;
  properties->device_type = nccl::kDeviceTypeHost;
  properties->device_version = 0;
  properties->virtual_device = {1, {device}};
  properties->max_p2p_bytes = nccl::kMaxTransferBytes;
  properties->max_collective_bytes = nccl::kMaxTransferBytes;
  properties->max_multi_request_size = 1;
  return NcclResult::kSuccess;
}

NcclResult set_attributes_v11(void* context, nccl::NetAttributesV11* attributes) {
  return set_attributes(context, attributes->receive);
}

}  // namespace
}  // namespace pacecar::plugin

// Absent on purpose: dma-buf registration, device offload and virtual devices, all of which the
// properties say we do not have; NCCL asks before it calls.
extern "C" [[gnu::visibility("default")]] const pacecar::nccl::NetV11 ncclNetPlugin_v11 = {
    .name = "Pacecar",
    .init = pacecar::plugin::init_v11,
    .devices = pacecar::plugin::devices,
    .getProperties = pacecar::plugin::get_properties_v11,
    .listen = pacecar::plugin::listen,
    .connect = pacecar::plugin::connect,
    .accept = pacecar::plugin::accept,
    .regMr = pacecar::plugin::register_memory,
    .regMrDmaBuf = nullptr,
    .deregMr = pacecar::plugin::deregister_memory,
    .isend = pacecar::plugin::isend,
    .irecv = pacecar::plugin::irecv,
    .iflush = pacecar::plugin::iflush,
    .test = pacecar::plugin::test,
    .closeSend = pacecar::plugin::close_connection,
    .closeRecv = pacecar::plugin::close_connection,
    .closeListen = pacecar::plugin::close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr,
    .makeVDevice = nullptr,
    .finalize = pacecar::plugin::finalize,
    .setNetAttr = pacecar::plugin::set_attributes_v11,
};
