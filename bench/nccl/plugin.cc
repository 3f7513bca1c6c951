#include "bench/nccl/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>

#include <cstdarg>
#include <cstdio>

namespace pacecar::nccl {
namespace {

constexpr uint64_t kCommunicatorId = 1;

// One write, so that the lines of several ranks stay whole.
void print_line(const char* format, va_list arguments) {
  std::array<char, 1024> line{};
  std::vsnprintf(line.data(), line.size(), format, arguments);
  std::fprintf(stderr, "%s\n", line.data());
}

// NCCL's logger has no context argument: one function per level of detail.
void log_all(LogSeverity, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments);
  va_end(arguments);
}

void log_warnings(LogSeverity severity, unsigned long, const char*, int, const char* format, ...) {
  if (severity != LogSeverity::kWarn && severity != LogSeverity::kAbort) return;
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments);
  va_end(arguments);
}

Result<void> check(NcclResult result, const char* call) {
  if (result == NcclResult::kSuccess) return {};
  return fail(ErrorCode::kPeer,
              fmt::format("the plugin's {} failed with NCCL result {}; its warnings above say why",
                          call, static_cast<int>(result)));
}

// Calls `step` until it gives a comm.
template <typename Step>
Result<void*> poll(const Patience& patience, const Step& step) {
  for (;;) {
    Result<void*> comm = step();
    if (!comm || *comm != nullptr) return comm;
    if (auto ok = patience(); !ok) return tl::unexpected(ok.error());
    sched_yield();
  }
}

}  // namespace

Result<std::unique_ptr<Plugin>> Plugin::load(const std::string& path, bool verbose, int version,
                                             int device) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("cannot load the net plugin: {}", dlerror()));
  }
  std::unique_ptr<AnyNet> net = version == 0 ? find_net(library) : find_net(library, version);
  if (net == nullptr) {
    dlclose(library);
    return fail(ErrorCode::kNotFound,
                version == 0
                    ? fmt::format("{} exports no ncclNetPlugin_v{} to v{}: it is no net plugin for "
                                  "NCCL 2.13 or later",
                                  path, kOldestVersion, kNewestVersion)
                    : fmt::format("{} exports no ncclNetPlugin_v{}: name another version with "
                                  "--api, or none for the newest",
                                  path, version));
  }
  std::unique_ptr<Plugin> plugin(new Plugin(library, std::move(net)));
  const AnyNet& loaded = *plugin->net_;
  const NcclResult result = plugin->net_->init(&plugin->context_, kCommunicatorId, {kUndefined},
                                               verbose ? log_all : log_warnings, nullptr);
  if (auto ok = check(result, "init"); !ok) return tl::unexpected(ok.error());
  int devices = 0;
  if (auto ok = check(loaded.devices(&devices), "devices"); !ok) return tl::unexpected(ok.error());
  if (devices < 1) return fail(ErrorCode::kNotFound, "the plugin offers no device");
  if (device >= devices) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the plugin has {} devices, and no number {}", devices, device));
  }
  plugin->device_ = device;
  return plugin;
}

Plugin::~Plugin() {
  if (context_ != nullptr) net_->finalize(context_);
  net_.reset();
  dlclose(library_);
}

Result<std::string> Plugin::device_name() const {
  NetPropertiesV12 properties{};
  return check(net_->getProperties(device_, &properties), "getProperties").map([&] {
    return std::string(properties.name);
  });
}

Result<void*> Plugin::listen(HandleBytes* handle) const {
  void* comm = nullptr;
  return check(net_->listen(context_, device_, handle->data(), &comm), "listen").map([&] {
    return comm;
  });
}

Result<void*> Plugin::try_connect(HandleBytes& handle) const {
  void* comm = nullptr;
  DeviceHandle* device = nullptr;
  const auto result = net_->connect(context_, device_, handle.data(), &comm, &device);
  return check(result, "connect").map([&] { return comm; });
}

Result<void*> Plugin::try_accept(void* listening) const {
  void* comm = nullptr;
  DeviceHandle* device = nullptr;
  const auto result = net_->accept(listening, &comm, &device);
  return check(result, "accept").map([&] { return comm; });
}

Result<void*> Plugin::connect(HandleBytes handle, const Patience& patience) const {
  return poll(patience, [&] { return try_connect(handle); });
}

Result<void*> Plugin::accept(void* listening, const Patience& patience) const {
  return poll(patience, [&] { return try_accept(listening); });
}

Result<void*> Plugin::register_memory(void* comm, std::span<std::byte> memory) const {
  void* registration = nullptr;
  const auto result = net_->regMr(comm, memory.data(), memory.size(), kPointerHost, &registration);
  return check(result, "regMr").map([&] { return registration; });
}

Result<void> Plugin::deregister_memory(void* comm, void* registration) const {
  return check(net_->deregMr(comm, registration), "deregMr");
}

Result<void*> Plugin::send(void* comm, std::span<std::byte> data, void* registration) const {
  void* request = nullptr;
  const auto result =
      net_->isend(comm, data.data(), data.size(), 0, registration, nullptr, &request);
  return check(result, "isend").map([&] { return request; });
}

Result<void*> Plugin::receive(void* comm, std::span<std::byte> data, void* registration) const {
  void* request = nullptr;
  void* address = data.data();
  size_t size = data.size();
  int tag = 0;
  void* profiler_handle = nullptr;
  const auto result =
      net_->irecv(comm, 1, &address, &size, &tag, &registration, &profiler_handle, &request);
  return check(result, "irecv").map([&] { return request; });
}

Result<bool> Plugin::test(void* request, size_t* bytes) const {
  int done = 0;
  int size = 0;
  const auto result = net_->test(request, &done, &size);
  *bytes = static_cast<size_t>(size);
  return check(result, "test").map([&] { return done == 1; });
}

Result<void> Plugin::close_send(void* comm) const {
  return check(net_->closeSend(comm), "closeSend");
}
Result<void> Plugin::close_receive(void* comm) const {
  return check(net_->closeRecv(comm), "closeRecv");
}
Result<void> Plugin::close_listen(void* comm) const {
  return check(net_->closeListen(comm), "closeListen");
}

}  // namespace pacecar::nccl
