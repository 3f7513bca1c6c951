#include "net_plugin/entry_points.h"

#include <array>
#include <cstring>
#include <string>

#include "net_plugin/comm.h"
#include "net_plugin/communicator.h"
#include "net_plugin/guarded.h"
#include "net_plugin/log.h"
#include "net_plugin/profiler/net_events.h"
#include "transport/base/params_environment.h"

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

// A connection goes to NCCL as a Comm, so that regMr and deregMr take either end.
Comm& comm_of(void* pointer) { return *static_cast<Comm*>(pointer); }

template <typename T>
NcclResult hand_over(Result<std::unique_ptr<T>> comm, std::string_view what, void** out) {
  if (!comm) return report(what, comm.error());
  *out = static_cast<Comm*>(comm->release());
  return NcclResult::kSuccess;
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

std::optional<uint32_t> checked_traffic_class(int given) {
  constexpr int kLargest = 255;
  constexpr uint32_t kEcnBits = 3;
  if (given == nccl::kUndefined) return std::nullopt;
  if (given < 0 || given > kLargest) {
    log(LogLevel::kWarn, "the communicator's traffic class " + std::to_string(given) +
                             " is not used: give 0 to 255, the IP header's byte");
    return std::nullopt;
  }
  return static_cast<uint32_t>(given) & ~kEcnBits;
}

NcclResult init(void** context, nccl::Logger logger, int traffic_class) noexcept {
  *context = nullptr;
  return guarded([&] {
    set_logger(logger);
    Result<std::unique_ptr<Communicator>> communicator =
        open_communicator(checked_traffic_class(traffic_class));
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
    static_cast<Communicator*>(context)->expect(known_count(receive.max_concurrent_peers));
    return NcclResult::kSuccess;
  });
}

NcclResult devices(int* count) noexcept {
  *count = 0;
  return guarded([&] {
    const std::shared_ptr<Context> context = current_context();
    if (context == nullptr) return misuse("devices was called before init");
    *count = static_cast<int>(context->nics().size());
    return NcclResult::kSuccess;
  });
}

NcclResult make_virtual_device(std::span<const int> members, int* device) noexcept {
  return guarded([&] {
    const Result<size_t> made = make_bond(members);
    if (!made) return report("makeVDevice", made.error());
    *device = static_cast<int>(*made);
    return NcclResult::kSuccess;
  });
}

NcclResult nic_info(int device, const NicInfo** info) noexcept {
  return guarded([&] {
    const std::shared_ptr<Context> context = current_context();
    if (context == nullptr) return misuse("getProperties was called before init");
    if (device < 0 || static_cast<size_t>(device) >= context->nics().size()) {
      log(LogLevel::kError, "there is no device " + std::to_string(device) +
                                ": devices() returns how many there are");
      return NcclResult::kInvalidArgument;
    }
    *info = &context->nics()[static_cast<size_t>(device)];
    return NcclResult::kSuccess;
  });
}

NcclResult listen(void* context, int device, void* handle, void** listen_comm) noexcept {
  *listen_comm = nullptr;
  return guarded([&] {
    if (context == nullptr) return misuse("listen was called before init");
    Result<std::unique_ptr<ListenComm>> comm =
        static_cast<Communicator*>(context)->listen(static_cast<size_t>(device));
    if (!comm) return report("listen", comm.error());
    std::memcpy(handle, (*comm)->listener->handle().bytes.data(), Handle::kBytes);
    *listen_comm = comm->release();
    return NcclResult::kSuccess;
  });
}

NcclResult connect(void* context, int device, void* handle, void** send_comm,
                   nccl::DeviceHandle** /*device_handle*/) noexcept {
  *send_comm = nullptr;
  return guarded([&] {
    if (context == nullptr) return misuse("connect was called before init");
    return hand_over(
        static_cast<Communicator*>(context)->connect(static_cast<size_t>(device), handle),
        "connect", send_comm);
  });
}

NcclResult accept(void* listen_comm, void** receive_comm,
                  nccl::DeviceHandle** /*device_handle*/) noexcept {
  *receive_comm = nullptr;
  return guarded([&] {
    return hand_over(static_cast<ListenComm*>(listen_comm)->accept(), "accept", receive_comm);
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
  return guarded([&] {
    const Result<MemoryRange> range = memory_range(data, size, type, offset, fd);
    if (!range) return report("register memory", range.error());
    const Result<const Memory*> registered =
        comm_of(comm).context().register_memory(comm_of(comm).nic(), *range);
    if (!registered) return report("register memory", registered.error());
    *memory = const_cast<Memory*>(*registered);
    return NcclResult::kSuccess;
  });
}

NcclResult register_memory(void* comm, void* data, size_t size, int type, void** memory) noexcept {
  return register_dmabuf(comm, data, size, type, 0, kNoFile, memory);
}

NcclResult deregister_memory(void* comm, void* memory) noexcept {
  return guarded([&] {
    const Result<void> done = comm_of(comm).context().deregister_memory(
        comm_of(comm).nic(), static_cast<const Memory*>(memory));
    return done ? NcclResult::kSuccess : report("deregister memory", done.error());
  });
}

NcclResult isend(void* send_comm, void* data, size_t size, int tag, void* memory,
                 void* profiler_handle, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    CommRequest* started = nullptr;
    const NcclResult result = static_cast<SendComm&>(comm_of(send_comm))
                                  .isend(data, size, tag, static_cast<Memory*>(memory), &started);
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
        with_buffers("receive", count, data, sizes, tags, memories, [&](auto buffers) {
          return static_cast<ReceiveComm&>(comm_of(receive_comm)).irecv(buffers, &started);
        });
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
        with_buffers("flush", count, data, sizes, nullptr, memories, [&](auto buffers) {
          return static_cast<ReceiveComm&>(comm_of(receive_comm)).iflush(buffers, &started);
        });
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
