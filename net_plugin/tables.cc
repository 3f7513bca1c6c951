// The functions that NCCL calls, and the tables of the net plugin, one per version. An overload has
// the arguments of some versions: the types of a table's members choose.
#include "net_plugin/tables.h"

#include <fmt/format.h>
#include <pthread.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "net_plugin/abi/tables.h"
#include "net_plugin/comm.h"
#include "net_plugin/communicator.h"
#include "net_plugin/log.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar::plugin {

using nccl::DeviceHandle;
using nccl::NcclResult;

namespace {

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
    return report("cannot serve, and NCCL takes its next network or, with NCCL_NET=Pacecar, stops",
                  error);
  }
  report("cannot serve although PACECAR_REQUIRE is set (with NCCL_NET=Pacecar, NCCL stops here)",
         error);
  return NcclResult::kSystemError;
}

// A count that NCCL passes; 0: unknown.
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

NcclResult finalize_for_good(void* context) noexcept {
  const NcclResult result = finalize(context);
  const char* const kept = std::getenv("NCCL_NET_PLUGIN_REF_COUNT");
  if (current_context() == nullptr && (kept == nullptr || kept == std::string_view("0"))) {
    log(LogLevel::kWarn,
        "this NCCL forgets plugins with the last communicator (nccl issue 1978): a later one fails "
        "or uses another network, unless you set NCCL_NET_PLUGIN_REF_COUNT=1");
  }
  return result;
}

NcclResult devices(int* count) noexcept {
  *count = 0;
  return guarded("devices", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const auto context, open_context());
    *count = static_cast<int>(context->nics().size());
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

namespace {

using plugin::init;
using plugin::listen;

// --- set-up ---

// Before version 11 NCCL passes no communicator and finalizes none. So the process has one, from
// the first init to its end. Neither is destroyed: NCCL's threads may call while the process ends.
constinit std::mutex g_mutex;  // guards g_context
constinit void* g_context = nullptr;

NcclResult init(nccl::Logger logger) noexcept {
  const std::lock_guard lock(g_mutex);
  if (g_context != nullptr) return NcclResult::kSuccess;
  [[maybe_unused]] static const int for_children =
      pthread_atfork(nullptr, nullptr, [] { g_context = nullptr; });
  return init(&g_context, logger, nccl::kUndefined);
}

// The context for entry points; nullptr before init.
void* process_context() noexcept {
  const std::lock_guard lock(g_mutex);
  return g_context;
}

NcclResult init(nccl::Logger logger, nccl::ProfilerCallback /*profiler*/) { return init(logger); }

NcclResult init(void** context, uint64_t /*comm_id*/, nccl::CommConfig* config, nccl::Logger logger,
                nccl::ProfilerCallback /*profiler*/) {
  return init(context, logger, config == nullptr ? nccl::kUndefined : config->traffic_class);
}

// Announces what the communicator will receive. NCCL calls it before it connects, and before the
// first message of a different operation. Its counts already depend on operation and algorithm.
NcclResult set_attributes(void* context, nccl::NetAttributes* attributes) noexcept {
  return guarded([&] {
    const nccl::CommAttributes& receive = attributes->receive;
    static_cast<Communicator*>(context)->expect(known_count(receive.max_concurrent_peers));
    return NcclResult::kSuccess;
  });
}

// The members, for flaw_of_merge; unknown ones are left to make_bond.
template <typename Devices>
std::vector<NicInfo> known_nics(const Devices& devices) {
  std::vector<NicInfo> known;
  for (const int device : devices) {
    const NicInfo* nic = nullptr;
    if (nic_info(device, &nic) == NcclResult::kSuccess) known.push_back(*nic);
  }
  return known;
}

// Adds a device that bonds these; NCCL calls it once per process, and relies on it from then on.
template <typename VirtualDevice>
NcclResult make_virtual_device(int* device, VirtualDevice* members) noexcept {
  const int most = static_cast<int>(std::size(members->devices));
  const auto count = static_cast<size_t>(std::clamp(members->count, 0, most));
  const auto nics = std::span(members->devices).first(count);
  return guarded([&] {
    if (const char* const flaw = flaw_of_merge(known_nics(nics))) {
      log(LogLevel::kInfo,
          fmt::format("NICs {} are not merged; to join them, name them A+B in PACECAR_NICS", flaw));
      return NcclResult::kInvalidUsage;
    }
    const Result<size_t> made = make_bond(nics);
    if (!made) return report("makeVDevice", made.error());
    *device = static_cast<int>(*made);
    return NcclResult::kSuccess;
  });
}

// --- connections ---

NcclResult listen(int device, void* handle, void** listen_comm) {
  return listen(process_context(), device, handle, listen_comm);
}

NcclResult connect(void* context, int device, void* handle, void** send_comm,
                   DeviceHandle** /*device_handle*/) noexcept {
  *send_comm = nullptr;
  return guarded("connect", [&]() -> Result<void> {
    ASSIGN_OR_RETURN(Communicator* const communicator, communicator_of(context));
    ASSIGN_OR_RETURN(auto sender, communicator->connect(static_cast<size_t>(device), handle));
    if (sender != nullptr) *send_comm = new Comm(communicator->context(), std::move(sender));
    return {};
  });
}

NcclResult connect(int device, void* handle, void** send_comm, DeviceHandle** device_handle) {
  return connect(process_context(), device, handle, send_comm, device_handle);
}

NcclResult connect(int device, void* handle, void** send_comm) {
  return connect(device, handle, send_comm, nullptr);
}

NcclResult connect(int device, nccl::CommConfig* config, void* handle, void** send_comm,
                   DeviceHandle** device_handle) {
  void* const context = process_context();
  const NcclResult result = connect(context, device, handle, send_comm, device_handle);
  if (*send_comm == nullptr || config == nullptr) return result;
  return guarded([&] {
    static_cast<Communicator*>(context)->check_traffic_class(
        checked_traffic_class(config->traffic_class));
    return result;
  });
}

NcclResult accept(void* listen_comm, void** receive_comm,
                  DeviceHandle** /*device_handle*/) noexcept {
  *receive_comm = nullptr;
  return guarded("accept", [&]() -> Result<void> {
    const auto& listening = *static_cast<ListenComm*>(listen_comm);
    ASSIGN_OR_RETURN(auto receiver, listening.listener->accept());
    if (receiver != nullptr) *receive_comm = new Comm(listening.context, std::move(receiver));
    return {};
  });
}

NcclResult accept(void* listen_comm, void** receive_comm) {
  return accept(listen_comm, receive_comm, nullptr);
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

// NCCL's sizes are never negative; a negative one becomes larger than any memory, and is refused.
template <typename Size>
NcclResult register_memory(void* comm, void* data, Size size, int type, void** memory) {
  return register_dmabuf(comm, data, static_cast<size_t>(size), type, 0, kNoFile, memory);
}

NcclResult deregister_memory(void* comm, void* memory) noexcept {
  return guarded("deregister memory", [&] {
    return comm_of(comm).context().deregister_memory(comm_of(comm).nic(),
                                                     static_cast<const Memory*>(memory));
  });
}

// --- requests ---

NcclResult isend(void* send_comm, void* data, size_t size, int tag, void* memory,
                 void* /*profiler_handle*/, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    CommRequest* started = nullptr;
    const NcclResult result =
        comm_of(send_comm).isend(data, size, tag, static_cast<Memory*>(memory), &started);
    *request = started;
    return result;
  });
}

template <typename Size>
NcclResult isend(void* send_comm, void* data, Size size, int tag, void* memory, void** request) {
  return isend(send_comm, data, static_cast<size_t>(size), tag, memory, nullptr, request);
}

template <typename Size>
NcclResult irecv(void* receive_comm, int count, void** data, Size* sizes, int* tags,
                 void** memories, void** /*profiler_handles*/, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    CommRequest* started = nullptr;
    const NcclResult result =
        with_buffers("receive", count, data, sizes, tags, memories,
                     [&](auto buffers) { return comm_of(receive_comm).irecv(buffers, &started); });
    *request = started;
    return result;
  });
}

template <typename Size>
NcclResult irecv(void* receive_comm, int count, void** data, Size* sizes, int* tags,
                 void** memories, void** request) {
  return irecv(receive_comm, count, data, sizes, tags, memories, nullptr, request);
}

// No request if the GPU sees the bytes already, as with host memory.
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

// --- tables ---

// Device offload is left out: the properties say that there is none, and NCCL asks before it calls.
template <typename Net>
constexpr Net table() {
  Net net{};
  net.name = "Pacecar";
  net.init = init;
  net.devices = devices;
  net.getProperties = get_properties;
  net.listen = listen;
  net.connect = connect;
  net.accept = accept;
  net.regMr = register_memory;
  net.regMrDmaBuf = register_dmabuf;
  net.deregMr = deregister_memory;
  net.isend = isend;
  net.irecv = irecv;
  net.iflush = iflush;
  net.test = test;
  net.closeSend = destroy<Comm>;
  net.closeRecv = destroy<Comm>;
  net.closeListen = close_listen;
  if constexpr (requires { net.makeVDevice; }) net.makeVDevice = make_virtual_device;
  if constexpr (requires { net.setNetAttr; }) {
    net.finalize = std::is_same_v<Net, nccl::NetV11> ? finalize_for_good : finalize;
    net.setNetAttr = set_attributes;
  }
  return net;
}

}  // namespace

extern "C" {

#define PACECAR_NET_TABLE(version)                                                               \
  [[gnu::visibility("default")]] extern constexpr nccl::NetV##version ncclNetPlugin_v##version = \
      table<nccl::NetV##version>();

PACECAR_NET_TABLE(6)
PACECAR_NET_TABLE(7)
PACECAR_NET_TABLE(8)
PACECAR_NET_TABLE(9)
PACECAR_NET_TABLE(10)
PACECAR_NET_TABLE(11)
PACECAR_NET_TABLE(12)
#undef PACECAR_NET_TABLE
}

}  // namespace pacecar::plugin
