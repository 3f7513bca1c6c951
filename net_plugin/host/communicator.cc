#include "net_plugin/host/communicator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

namespace pacecar::nccl {
namespace {

std::mutex g_listener_mutex;
LogListener g_listener;

void receive_log(LogSeverity severity, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 1024> line{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(g_listener_mutex);
  g_listener(severity, line.data());
}

}  // namespace

Communicator::Communicator(Subject subject, LogListener listener) : subject_(std::move(subject)) {
  {
    const std::lock_guard lock(g_listener_mutex);
    g_listener = std::move(listener);
  }
  library_ = dlopen(subject_.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr)
    throw HostError(fmt::format("the plugin cannot be loaded: {}", dlerror()));
  net_ = find_net(library_, subject_.version);
  if (net_ != nullptr) return;
  dlclose(library_);
  throw HostError(subject_.version == 0
                      ? fmt::format("{} exports no ncclNetPlugin_v{} to v{}: it is no net plugin "
                                    "for NCCL 2.13 or later",
                                    subject_.path, kOldestVersion, kNewestVersion)
                      : fmt::format("{} exports no ncclNetPlugin_v{}: name another version",
                                    subject_.path, subject_.version));
}

Communicator::~Communicator() {
  if (context_ != nullptr) net_->finalize(context_);
  net_.reset();
  dlclose(library_);
}

Logger Communicator::logger() { return receive_log; }

NcclResult Communicator::init(void** context, int traffic_class) const {
  *context = kGarbage;
  return net_->init(context, 0x1234, {traffic_class}, receive_log, nullptr);  // without a profiler
}

void Communicator::start() {
  if (context_ != nullptr) return;
  context_ = another_context();
  const int count = device_count();
  expect(device() >= 0 && device() < count,
         fmt::format("it has {} devices, and no number {}", count, device()));
}

void Communicator::finalize() {
  expect_success(net_->finalize(context_), "finalize");
  context_ = nullptr;
}

void* Communicator::another_context() {
  void* context = nullptr;
  expect_success(init(&context, kUndefined), "init");
  return context;
}

int Communicator::device_count() const {
  int count = 0;
  expect_success(net_->devices(&count), "devices");
  return count;
}

NetPropertiesV12 Communicator::properties(int device) const {
  NetPropertiesV12 properties{};
  expect_success(net_->getProperties(device, &properties), "getProperties");
  return properties;
}

}  // namespace pacecar::nccl
