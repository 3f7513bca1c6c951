// The properties of a device, in whatever version NCCL asks for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "net_plugin/entry_points.h"

namespace pacecar::plugin {

// Mb/s of a virtual device, which does not know its speed. NCCL searches its channels by speed, and
// assumes 10 Gb/s itself for such a device.
constexpr uint64_t kUnknownSpeedMbps = 10'000;

template <typename Properties>
nccl::NcclResult get_properties(int device, Properties* properties) {
  *properties = {};  // latency 0: unknown; device type 0: kDeviceTypeHost
  const NicInfo* nic = nullptr;
  const nccl::NcclResult result = nic_info(device, &nic);
  if (result != nccl::NcclResult::kSuccess) return result;

  constexpr uint64_t kIntMax = INT32_MAX;
  properties->name = const_cast<char*>(nic->name.c_str());
  properties->pci_path = nic->pci_path.empty() ? nullptr : const_cast<char*>(nic->pci_path.c_str());
  properties->guid = nic->guid;
  properties->pointer_support = nccl::kPointerHost | (nic->cuda ? nccl::kPointerCuda : 0) |
                                (nic->dma_buf ? nccl::kPointerDmaBuf : 0);
  const uint64_t speed = nic->speed_mbps == 0 ? kUnknownSpeedMbps * nic->ports : nic->speed_mbps;
  properties->speed = static_cast<int>(std::min(speed, kIntMax));
  properties->port = 1;
  properties->max_connections = static_cast<int>(std::min<uint64_t>(nic->max_connections, kIntMax));
  properties->max_receives = kMaxReceiveBuffers;
  if constexpr (requires { properties->registration_is_global; }) {
    properties->registration_is_global = 1;  // memory is registered with the NIC
  }
  if constexpr (requires { properties->virtual_device; }) {
    properties->force_flush = nic->gpu_flush ? 1 : 0;
    properties->virtual_device = {1, {device}};
    if (!nic->members.empty()) {
      auto& made_of = properties->virtual_device;
      made_of.count = static_cast<int>(std::min(nic->members.size(), std::size(made_of.devices)));
      std::copy_n(nic->members.begin(), made_of.count, made_of.devices);
    }
    properties->max_p2p_bytes = properties->max_collective_bytes =
        nic->gpu_message_bytes != 0 ? nic->gpu_message_bytes : nccl::kMaxTransferBytes;
  }
  if constexpr (requires { properties->max_multi_request_size; }) {
    properties->max_multi_request_size = 1;
  }
  if constexpr (requires { properties->rail; }) {
    properties->rail = nic->rail ? static_cast<int16_t>(*nic->rail) : nccl::kUndefined;
    properties->plane = nccl::kUndefined;
  }
  return nccl::NcclResult::kSuccess;
}

}  // namespace pacecar::plugin
