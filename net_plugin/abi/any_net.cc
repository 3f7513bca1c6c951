#include "net_plugin/abi/any_net.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <iterator>
#include <string>

#include "net_plugin/abi/tables.h"

namespace pacecar::nccl {
namespace {

constexpr int kMostBuffers = 64;  // of one receive: more than any plugin takes
constexpr size_t kOldTransferBytes = size_t{1} << 30;

template <typename Table, int kVersion>
class NetOf final : public AnyNet {
 public:
  explicit NetOf(const Table& table) : AnyNet(kVersion), table_(table) {}

  const char* name() const override { return table_.name; }

  Offered offered() const override {
    Offered offered{.dma_buf = table_.regMrDmaBuf != nullptr, .flush = table_.iflush != nullptr};
    if constexpr (kVersion >= 7) {
      offered.device_memory = table_.getDeviceMr != nullptr;
      offered.consumed = table_.irecvConsumed != nullptr;
    }
    if constexpr (kVersion >= 9) offered.virtual_devices = table_.makeVDevice != nullptr;
    if constexpr (kVersion >= 11) {
      offered.finalize = table_.finalize != nullptr;
      offered.attributes = table_.setNetAttr != nullptr;
    }
    return offered;
  }

  NcclResult init(void** context, uint64_t comm_id, const CommConfig& config, Logger logger,
                  ProfilerCallback profiler) override {
    config_ = config;
    if constexpr (kVersion >= 11) {
      return table_.init(context, comm_id, &config_, logger, profiler);
    } else {
      const NcclResult result = init_process(logger, profiler);
      *context = result == NcclResult::kSuccess ? this : nullptr;
      return result;
    }
  }

  NcclResult devices(int* count) const override { return table_.devices(count); }

  NcclResult getProperties(int device, NetPropertiesV12* properties) const override {
    if constexpr (kVersion >= 12) {
      return table_.getProperties(device, properties);
    } else {
      return translate(device, table_.getProperties, properties);
    }
  }

  NcclResult makeVDevice(int* device, const VirtualDeviceV12& members) const override {
    if constexpr (kVersion >= 9) {
      if (table_.makeVDevice != nullptr) return make_virtual(table_.makeVDevice, device, members);
    }
    return NcclResult::kInvalidUsage;
  }

  NcclResult listen(void* context, int device, void* handle, void** listen_comm) const override {
    if constexpr (kVersion >= 11) {
      return table_.listen(context, device, handle, listen_comm);
    } else {
      return table_.listen(device, handle, listen_comm);
    }
  }

  NcclResult connect(void* context, int device, void* handle, void** send_comm,
                     DeviceHandle** device_handle) const override {
    if constexpr (kVersion >= 11) {
      return table_.connect(context, device, handle, send_comm, device_handle);
    } else if constexpr (kVersion == 10) {
      CommConfig config = config_;
      return table_.connect(device, &config, handle, send_comm, device_handle);
    } else if constexpr (kVersion >= 7) {
      return table_.connect(device, handle, send_comm, device_handle);
    } else {
      return table_.connect(device, handle, send_comm);
    }
  }

  NcclResult accept(void* listen_comm, void** receive_comm,
                    DeviceHandle** device_handle) const override {
    if constexpr (kVersion >= 7) {
      return table_.accept(listen_comm, receive_comm, device_handle);
    } else {
      return table_.accept(listen_comm, receive_comm);
    }
  }

  NcclResult regMr(void* comm, void* data, size_t size, int type, void** memory) const override {
    if constexpr (kVersion >= 8) {
      return table_.regMr(comm, data, size, type, memory);
    } else {
      if (size > INT_MAX) return NcclResult::kInternalError;
      return table_.regMr(comm, data, static_cast<int>(size), type, memory);
    }
  }

  NcclResult regMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                         void** memory) const override {
    if (table_.regMrDmaBuf == nullptr) return NcclResult::kInvalidUsage;
    return table_.regMrDmaBuf(comm, data, size, type, offset, fd, memory);
  }

  NcclResult deregMr(void* comm, void* memory) const override {
    return table_.deregMr(comm, memory);
  }

  NcclResult isend(void* send_comm, void* data, size_t size, int tag, void* memory,
                   void* profiler_handle, void** request) const override {
    if constexpr (kVersion >= 10) {
      return table_.isend(send_comm, data, size, tag, memory, profiler_handle, request);
    } else if constexpr (kVersion == 9) {
      return table_.isend(send_comm, data, size, tag, memory, request);
    } else {
      if (size > INT_MAX) return NcclResult::kInternalError;
      return table_.isend(send_comm, data, static_cast<int>(size), tag, memory, request);
    }
  }

  NcclResult irecv(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                   void** memories, void** profiler_handles, void** request) const override {
    if constexpr (kVersion >= 10) {
      return table_.irecv(receive_comm, count, data, sizes, tags, memories, profiler_handles,
                          request);
    } else if constexpr (kVersion == 9) {
      return table_.irecv(receive_comm, count, data, sizes, tags, memories, request);
    } else {
      std::array<int, kMostBuffers> narrow{};
      for (int i = 0; i < count && i < kMostBuffers; ++i) {
        if (sizes[i] > INT_MAX) return NcclResult::kInternalError;
        narrow[static_cast<size_t>(i)] = static_cast<int>(sizes[i]);
      }
      return table_.irecv(receive_comm, count, data, narrow.data(), tags, memories, request);
    }
  }

  NcclResult iflush(void* receive_comm, int count, void** data, int* sizes, void** memories,
                    void** request) const override {
    if (table_.iflush == nullptr) return NcclResult::kInvalidUsage;
    return table_.iflush(receive_comm, count, data, sizes, memories, request);
  }

  NcclResult test(void* request, int* done, int* sizes) const override {
    return table_.test(request, done, sizes);
  }
  NcclResult closeSend(void* send_comm) const override { return table_.closeSend(send_comm); }
  NcclResult closeRecv(void* receive_comm) const override { return table_.closeRecv(receive_comm); }
  NcclResult closeListen(void* listen_comm) const override {
    return table_.closeListen(listen_comm);
  }

  NcclResult finalize(void* context) const override {
    if constexpr (kVersion >= 11) {
      if (table_.finalize != nullptr) return table_.finalize(context);
    }
    return NcclResult::kSuccess;
  }

  NcclResult setNetAttr(void* context, NetAttributes* attributes) const override {
    if constexpr (kVersion >= 11) {
      if (table_.setNetAttr != nullptr) return table_.setNetAttr(context, attributes);
    }
    return NcclResult::kSuccess;
  }

 private:
  NcclResult init_process(Logger logger, ProfilerCallback profiler) const {
    if constexpr (kVersion == 10) {
      return table_.init(logger, profiler);
    } else if constexpr (kVersion < 10) {
      return table_.init(logger);
    }
    return NcclResult::kInternalError;
  }

  template <typename VirtualDevice>
  static NcclResult make_virtual(NcclResult (*make)(int*, VirtualDevice*), int* device,
                                 const VirtualDeviceV12& members) {
    VirtualDevice narrow{members.count, {}};
    if (members.count > static_cast<int>(std::size(narrow.devices))) {
      return NcclResult::kInvalidUsage;
    }
    std::copy_n(members.devices, std::max(members.count, 0), narrow.devices);
    return make(device, &narrow);
  }

  template <typename Properties>
  static NcclResult translate(int device, NcclResult (*get)(int, Properties*),
                              NetPropertiesV12* to) {
    // The plugin gets the caller's garbage, as from NCCL: members that it does not set keep it.
    Properties from;
    std::memset(static_cast<void*>(&from), *reinterpret_cast<const unsigned char*>(to),
                sizeof from);
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

  const Table& table_;
  CommConfig config_{kUndefined};
};

template <int kVersion, typename Table>
std::unique_ptr<AnyNet> find(void* library) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(kVersion);
  const auto* const table = static_cast<const Table*>(dlsym(library, symbol.c_str()));
  return table == nullptr ? nullptr : std::make_unique<NetOf<Table, kVersion>>(*table);
}

constexpr std::array<std::unique_ptr<AnyNet> (*)(void* library), 7> kVersions = {
    find<6, NetV6>,   find<7, NetV7>,   find<8, NetV8>,  find<9, NetV9>,
    find<10, NetV10>, find<11, NetV11>, find<12, NetV12>};
static_assert(kVersions.size() == kNewestVersion - kOldestVersion + 1);

}  // namespace

std::unique_ptr<AnyNet> find_net(void* library, int version) {
  const bool known = version >= kOldestVersion && version <= kNewestVersion;
  return known ? kVersions[static_cast<size_t>(version - kOldestVersion)](library) : nullptr;
}

std::unique_ptr<AnyNet> find_net(void* library) {
  for (int version = kNewestVersion; version >= kOldestVersion; --version) {
    if (auto net = find_net(library, version)) return net;
  }
  return nullptr;
}

}  // namespace pacecar::nccl
