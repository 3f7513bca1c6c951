// The functions that the tables of the net plugin and the tables of one-sided operations share. A
// context is a Communicator, or nullptr after an init that failed. They translate void pointers to
// objects, Result to ncclResult_t, and exceptions to an error. Each writes its outputs before
// anything can fail, because NCCL reads them without clearing them first. NCCL's thread rule: any
// thread sets up and tears down; one at a time calls a connection's requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "net_plugin/abi/types.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::plugin {

nccl::NcclResult init(void** context, nccl::Logger logger, int traffic_class) noexcept;
nccl::NcclResult finalize(void* context) noexcept;
// For NCCL 2.28 and 2.29: the last one logs that NCCL will not find the plugin again.
nccl::NcclResult finalize_for_good(void* context) noexcept;
nccl::NcclResult devices(int* count) noexcept;
nccl::NcclResult listen(void* context, int device, void* handle, void** listen_comm) noexcept;
nccl::NcclResult close_listen(void* listen_comm) noexcept;

// `type` is one of kPointerHost and kPointerCuda. Errors: kInvalidArgument for any other.
constexpr int kNoFile = -1;  // the memory is not exported
Result<MemoryRange> memory_range(void* data, size_t size, int type, uint64_t offset, int fd);

// What the properties of all versions are made of; valid while a communicator is open.
nccl::NcclResult nic_info(int device, const NicInfo** info) noexcept;

// Mb/s of a virtual device, which does not know its speed. NCCL searches its channels by speed, and
// assumes 10 Gb/s itself for such a device.
constexpr uint64_t kUnknownSpeedMbps = 10'000;

// The properties of a device, in whatever version NCCL asks for.
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
