#include "net_plugin/entry_points.h"

#include <array>
#include <cstring>
#include <string>

#include "net_plugin/comm.h"
#include "net_plugin/communicator.h"
#include "net_plugin/log.h"
#include "net_plugin/profiler/net_events.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar::plugin {
namespace {

using nccl::NcclResult;

// Calls begin(buffers) with the arguments of a receive or a flush, once their number is checked.
template <typename Size, typename Begin>
NcclResult with_buffers(std::string_view call, int count, void** data, const Size* sizes,
                        const int* tags, void** memories, const Begin& begin) {
  if (count < 1 || count > kMaxReceiveBuffers) {
    return misuse("a " + std::string(call) + " of " + std::to_string(count) +
                  " buffers was posted, but the device's properties allow 1 to " +
                  std::to_string(kMaxReceiveBuffers));
  }
  std::array<ReceiveBuffer, kMaxReceiveBuffers> buffers;
  for (int i = 0; i < count; ++i) {
    buffers[static_cast<size_t>(i)] = {data[i], static_cast<size_t>(sizes[i]),
                                       tags == nullptr ? 0 : tags[i],
                                       static_cast<Memory*>(memories[i])};
  }
  return begin(std::span<const ReceiveBuffer>(buffers).first(static_cast<size_t>(count)));
}

Comm& comm_of(void* pointer) { return *static_cast<Comm*>(pointer); }

Result<Communicator*> communicator_of(void* context) {
  if (context == nullptr) return fail(ErrorCode::kInternal, "it was called before init");
  return static_cast<Communicator*>(context);
}
Result<std::shared_ptr<Context>> open_context() {
  if (auto context = current_context()) return context;
  return fail(ErrorCode::kInternal, "it was called before init");
}

// NCCL takes its next network when init fails, whatever the result; only NCCL_NET makes it stop.
NcclResult refuse(const Error& error) {
  const Result<Params> params = load_params_from_environment({}, nullptr);
  if (!params || !params->require) {
    return report("cannot serve, and NCCL takes its next network", error);
  }
  report("cannot serve although PACECAR_REQUIRE is set (with NCCL_NET=Pacecar, NCCL stops here)",
         error);
  return NcclResult::kSystemError;
}

// A count of NCCL's; 0: unknown.
uint32_t known_count(int32_t given) { return static_cast<uint32_t>(std::max(given, 0)); }

}  // namespace

NcclResult init(void** context, nccl::Logger logger, int traffic_class) noexcept {
  *context = nullptr;
  return guarded([&] {
    set_logger(logger);
    auto communicator = open_communicator(checked_traffic_class(traffic_class));
    if (!communicator) return refuse(communicator.error());
    *context = communicator->release();
    return NcclResult::kSuccess;
  });
}

NcclResult finalize(void* context) noexcept {
  return guarded([&] {
    close_communicator(std::unique_ptr<Communicator>(static_cast<Communicator*>(context)));
    return NcclResult::kSuccess;
  });
}

NcclResult set_attributes(void* context, nccl::NetAttributes* attributes) noexcept {
  return guarded([&] {
    const nccl::CommAttributes& receive = attributes->receive;
    static_cast<Communicator*>(context)->expect(known_count(receive.max_concurrent_peers),
                                                known_count(receive.max_flows_per_peer));
    return NcclResult::kSuccess;
  });
}

NcclResult devices(int* count) noexcept {
  *count = 0;
  return guarded("devices", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const auto context, open_context());
    *count = static_cast<int>(context->nics().size());
    return {};
  });
}

NcclResult make_virtual_device(std::span<const int> members, int* device) noexcept {
  return guarded("makeVDevice", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const size_t made, make_bond(members));
    *device = static_cast<int>(made);
    return {};
  });
}

NcclResult nic_info(int device, const NicInfo** info) noexcept {
  return guarded("getProperties", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const auto context, open_context());
    if (device < 0 || static_cast<size_t>(device) >= context->nics().size()) {
      return fail(ErrorCode::kInvalidArgument, "there is no device " + std::to_string(device) +
                                                   ": devices() returns how many there are");
    }
    *info = &context->nics()[static_cast<size_t>(device)];
    return {};
  });
}

NcclResult listen(void* context, int device, void* handle, void** listen_comm) noexcept {
  *listen_comm = nullptr;
  return guarded("listen", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const Communicator* const communicator, communicator_of(context));
    ASSIGN_OR_RETURN(auto listening, communicator->listen(static_cast<size_t>(device)));
    std::memcpy(handle, listening->listener->handle().bytes.data(), Handle::kBytes);
    *listen_comm = listening.release();
    return {};
  });
}

NcclResult connect(void* context, int device, void* handle, void** send_comm,
                   nccl::DeviceHandle** /*device_handle*/) noexcept {
  *send_comm = nullptr;
  return guarded("connect", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(Communicator* const communicator, communicator_of(context));
    ASSIGN_OR_RETURN(auto sender, communicator->connect(static_cast<size_t>(device), handle));
    if (sender != nullptr) *send_comm = new Comm(communicator->context(), std::move(sender));
    return {};
  });
}

NcclResult accept(void* listen_comm, void** receive_comm,
                  nccl::DeviceHandle** /*device_handle*/) noexcept {
  *receive_comm = nullptr;
  return guarded("accept", [&]() -> Result<void> {
    const auto& listening = *static_cast<ListenComm*>(listen_comm);
    ASSIGN_OR_RETURN(auto receiver, listening.listener->accept());
    if (receiver != nullptr) *receive_comm = new Comm(listening.context, std::move(receiver));
    return {};
  });
}

NcclResult close_connection(void* comm) noexcept { return destroy<Comm>(comm); }

NcclResult close_listen(void* listen_comm) noexcept { return destroy<ListenComm>(listen_comm); }

Result<MemoryRange> memory_range(void* data, size_t size, int type, uint64_t offset, int fd) {
  if (type != nccl::kPointerHost && type != nccl::kPointerCuda) {
    return fail(ErrorCode::kInvalidArgument, "there is no memory of type " + std::to_string(type) +
                                                 ": it is the host's (1) or a GPU's (2)");
  }
  return MemoryRange{.address = data,
                     .length = size,
                     .kind = type == nccl::kPointerCuda ? MemoryKind::kCuda : MemoryKind::kHost,
                     .dmabuf_fd = fd,
                     .dmabuf_offset = offset};
}

NcclResult register_dmabuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** memory) noexcept {
  *memory = nullptr;
  return guarded("register memory", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const MemoryRange range, memory_range(data, size, type, offset, fd));
    ASSIGN_OR_RETURN(const Memory* const registered,
                     comm_of(comm).context().register_memory(comm_of(comm).nic(), range));
    *memory = const_cast<Memory*>(registered);
    return {};
  });
}

NcclResult register_memory(void* comm, void* data, size_t size, int type, void** memory) noexcept {
  return register_dmabuf(comm, data, size, type, 0, kNoFile, memory);
}

NcclResult deregister_memory(void* comm, void* memory) noexcept {
  return guarded("deregister memory", [&] {
    return comm_of(comm).context().deregister_memory(comm_of(comm).nic(),
                                                     static_cast<const Memory*>(memory));
  });
}

NcclResult isend(void* send_comm, void* data, size_t size, int tag, void* memory,
                 void* profiler_handle, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    CommRequest* started = nullptr;
    const NcclResult result =
        comm_of(send_comm).isend(data, size, tag, static_cast<Memory*>(memory), &started);
    if (started != nullptr) started->event = profiler::begin_net_event(profiler_handle, {size, 1});
    *request = started;
    return result;
  });
}

NcclResult irecv(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                 void** memories, void** profiler_handles, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    CommRequest* started = nullptr;
    const NcclResult result =
        with_buffers("receive", count, data, sizes, tags, memories,
                     [&](auto buffers) { return comm_of(receive_comm).irecv(buffers, &started); });
    if (started != nullptr && profiler_handles != nullptr) {
      started->event = profiler::begin_net_event(profiler_handles[0], {sizes[0], 0});
    }
    *request = started;
    return result;
  });
}

NcclResult iflush(void* receive_comm, int count, void** data, int* sizes, void** memories,
                  void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    CommRequest* started = nullptr;
    const NcclResult result =
        with_buffers("flush", count, data, sizes, nullptr, memories,
                     [&](auto buffers) { return comm_of(receive_comm).iflush(buffers, &started); });
    *request = started;
    return result;
  });
}

NcclResult test(void* request, int* done, int* sizes) noexcept {
  *done = 0;
  return guarded([&] {
    if (request == nullptr) return misuse("test was called without a request");
    auto& tested = *static_cast<CommRequest*>(request);
    return tested.comm->test(tested, done, sizes);
  });
}

}  // namespace pacecar::plugin
