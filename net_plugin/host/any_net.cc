#include "net_plugin/host/any_net.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <iterator>
#include <string>

namespace pacecar::nccl {
namespace {

constexpr int kMostBuffers = 64;  // of one receive: more than any plugin takes
constexpr size_t kOldTransferBytes = size_t{1} << 30;

template <typename VirtualDevice>
NcclResult make_virtual(NcclResult (*make)(int*, VirtualDevice*), int* device,
                        const VirtualDeviceV12& members) {
  VirtualDevice narrow{members.count, {}};
  if (members.count > static_cast<int>(std::size(narrow.devices))) {
    return NcclResult::kInvalidUsage;
  }
  std::copy_n(members.devices, std::max(members.count, 0), narrow.devices);
  return make(device, &narrow);
}

template <typename Properties>
NcclResult translate(int device, NcclResult (*get)(int, Properties*), NetPropertiesV12* to) {
  // The plugin gets the caller's garbage, as from NCCL: members that it does not set keep it.
  Properties from;
  std::memset(static_cast<void*>(&from), *reinterpret_cast<const unsigned char*>(to), sizeof from);
  const NcclResult result = get(device, &from);
  *to = {};
  to->name = from.name;
  to->pci_path = from.pci_path;
  to->guid = from.guid;
  to->pointer_support = from.pointer_support;
  to->speed = from.speed;
  to->port = from.port;
  to->latency = from.latency;
  to->max_connections = from.max_connections;
  to->max_receives = from.max_receives;
  to->virtual_device = {1, {device}};
  to->max_p2p_bytes = to->max_collective_bytes = kOldTransferBytes;
  to->max_multi_request_size = 1;
  to->rail = to->plane = kUndefined;
  if constexpr (requires { from.device_type; }) {
    to->device_type = from.device_type;
    to->device_version = from.device_version;
  }
  if constexpr (requires { from.registration_is_global; }) {
    to->registration_is_global = from.registration_is_global;
  }
  if constexpr (requires { from.virtual_device; }) {
    to->force_flush = from.force_flush;
    to->virtual_device.count = from.virtual_device.count;
    std::ranges::copy(from.virtual_device.devices, to->virtual_device.devices);
    to->max_p2p_bytes = from.max_p2p_bytes;
    to->max_collective_bytes = from.max_collective_bytes;
  }
  if constexpr (requires { from.max_multi_request_size; }) {
    to->max_multi_request_size = from.max_multi_request_size;
  }
  return result;
}

template <int kVersion, typename Table>
void adapt_set_up(const Table& table, AnyNet& net) {
  net.name = table.name;
  net.init = [&](void** context, uint64_t comm_id, const CommConfig& config, Logger logger,
                 ProfilerCallback profiler) {
    net.config = config;
    if constexpr (kVersion >= 11) {
      return table.init(context, comm_id, &net.config, logger, profiler);
    } else {
      NcclResult result = NcclResult::kSuccess;
      if constexpr (kVersion == 10) {
        result = table.init(logger, profiler);
      } else {
        result = table.init(logger);
      }
      *context = result == NcclResult::kSuccess ? &net : nullptr;
      return result;
    }
  };
  net.devices = table.devices;
  net.getProperties = [&](int device, NetPropertiesV12* properties) {
    if constexpr (kVersion >= 12) {
      return table.getProperties(device, properties);
    } else {
      return translate(device, table.getProperties, properties);
    }
  };
  if constexpr (kVersion >= 9) {
    if (table.makeVDevice != nullptr) {
      net.makeVDevice = [&](int* device, const VirtualDeviceV12& members) {
        return make_virtual(table.makeVDevice, device, members);
      };
    }
  }
  net.finalize = [](void*) { return NcclResult::kSuccess; };
  net.setNetAttr = [](void*, NetAttributes*) { return NcclResult::kSuccess; };
  if constexpr (kVersion >= 11) {
    if (table.finalize != nullptr) net.finalize = table.finalize;
    if (table.setNetAttr != nullptr) net.setNetAttr = table.setNetAttr;
  }
}

template <int kVersion, typename Table>
void adapt_connections(const Table& table, AnyNet& net) {
  if constexpr (kVersion >= 11) {
    net.listen = table.listen;
    net.connect = table.connect;
  } else {
    net.listen = [&](void*, int device, void* handle, void** listen_comm) {
      return table.listen(device, handle, listen_comm);
    };
    net.connect = [&](void*, int device, void* handle, void** send_comm,
                      DeviceHandle** device_handle) {
      if constexpr (kVersion == 10) {
        return table.connect(device, &net.config, handle, send_comm, device_handle);
      } else if constexpr (kVersion >= 7) {
        return table.connect(device, handle, send_comm, device_handle);
      } else {
        return table.connect(device, handle, send_comm);
      }
    };
  }
  if constexpr (kVersion >= 7) {
    net.accept = table.accept;
  } else {
    net.accept = [&](void* listen_comm, void** receive_comm, DeviceHandle**) {
      return table.accept(listen_comm, receive_comm);
    };
  }
  if constexpr (kVersion >= 8) {
    net.regMr = table.regMr;
  } else {
    net.regMr = [&](void* comm, void* data, size_t size, int type, void** memory) {
      if (size > INT_MAX) return NcclResult::kInternalError;
      return table.regMr(comm, data, static_cast<int>(size), type, memory);
    };
  }
  net.regMrDmaBuf = table.regMrDmaBuf;
  net.deregMr = table.deregMr;
  net.closeSend = table.closeSend;
  net.closeRecv = table.closeRecv;
  net.closeListen = table.closeListen;
}

template <int kVersion, typename Table>
void adapt_requests(const Table& table, AnyNet& net) {
  if constexpr (kVersion >= 10) {
    net.isend = table.isend;
    net.irecv = table.irecv;
  } else {
    net.isend = [&](void* send_comm, void* data, size_t size, int tag, void* memory, void*,
                    void** request) {
      if (kVersion < 9 && size > INT_MAX) return NcclResult::kInternalError;
      using Size = std::conditional_t<(kVersion < 9), int, size_t>;
      return table.isend(send_comm, data, static_cast<Size>(size), tag, memory, request);
    };
    net.irecv = [&](void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                    void** memories, void**, void** request) {
      if constexpr (kVersion == 9) {
        return table.irecv(receive_comm, count, data, sizes, tags, memories, request);
      } else {
        std::array<int, kMostBuffers> narrow{};
        for (int i = 0; i < count && i < kMostBuffers; ++i) {
          if (sizes[i] > INT_MAX) return NcclResult::kInternalError;
          narrow[static_cast<size_t>(i)] = static_cast<int>(sizes[i]);
        }
        return table.irecv(receive_comm, count, data, narrow.data(), tags, memories, request);
      }
    };
  }
  net.iflush = table.iflush;
  net.test = table.test;
}

template <int kVersion, typename Table>
std::unique_ptr<AnyNet> find(void* library) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(kVersion);
  const auto* const table = static_cast<const Table*>(dlsym(library, symbol.c_str()));
  if (table == nullptr) return nullptr;
  auto net = std::make_unique<AnyNet>();
  net->version = kVersion;
  adapt_set_up<kVersion>(*table, *net);
  adapt_connections<kVersion>(*table, *net);
  adapt_requests<kVersion>(*table, *net);
  return net;
}

constexpr std::array<std::unique_ptr<AnyNet> (*)(void* library), 7> kVersions = {
    find<6, NetV6>,   find<7, NetV7>,   find<8, NetV8>,  find<9, NetV9>,
    find<10, NetV10>, find<11, NetV11>, find<12, NetV12>};
static_assert(kVersions.size() == kNewestVersion - kOldestVersion + 1);

}  // namespace

std::unique_ptr<AnyNet> find_net(void* library, int version) {
  for (int one = kNewestVersion; one >= kOldestVersion; --one) {
    if (version != 0 && version != one) continue;
    if (auto net = kVersions[static_cast<size_t>(one - kOldestVersion)](library)) return net;
  }
  return nullptr;
}

}  // namespace pacecar::nccl
