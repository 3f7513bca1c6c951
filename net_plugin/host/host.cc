#include "net_plugin/host/host.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

namespace pacecar::nccl {
namespace {

constexpr size_t kMostParts = 16;
constexpr size_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xA5;

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

// Polls `step` until it returns something.
template <typename Step>
void* poll_for(std::string_view what, const Step& step) {
  void* found = nullptr;
  poll_until(what, [&] { return (found = step()) != nullptr; });
  return found;
}

}  // namespace

LogListener warnings_to_stderr() {
  return [](LogSeverity severity, const char* line) {
    const bool warns = severity == LogSeverity::kWarn || severity == LogSeverity::kAbort;
    if (warns) std::fprintf(stderr, "%s\n", line);  // one write: lines of several ranks stay whole
  };
}

Host::Host(Subject subject, LogListener listener) : subject_(std::move(subject)) {
  {
    const std::lock_guard lock(g_listener_mutex);
    g_listener = std::move(listener);
  }
  library_ = dlopen(subject_.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr)
    throw HostError(fmt::format("the plugin cannot be loaded: {}", dlerror()));
  net_ = find_net(library_, subject_.version);
  profile_ = ProfilePlayer::find(library_);
  if (net_ != nullptr) return;
  dlclose(library_);
  throw HostError(subject_.version == 0
                      ? fmt::format("{} exports no ncclNetPlugin_v{} to v{}: it is no net plugin "
                                    "for NCCL 2.13 or later",
                                    subject_.path, kOldestVersion, kNewestVersion)
                      : fmt::format("{} exports no ncclNetPlugin_v{}: name another version",
                                    subject_.path, subject_.version));
}

Host::~Host() {
  if (context_ != nullptr) net_->finalize(context_);
  profile_.reset();
  net_.reset();
  dlclose(library_);
}

Logger Host::logger() { return receive_log; }

NcclResult Host::init(void** context, int traffic_class) const {
  *context = kGarbage;
  return net_->init(context, 0x1234, {traffic_class}, receive_log,
                    profile_ == nullptr ? nullptr : ProfilePlayer::callback);
}

void Host::start() {
  if (context_ != nullptr) return;
  context_ = another_context();
  const int count = device_count();
  expect(device() >= 0 && device() < count,
         fmt::format("it has {} devices, and no number {}", count, device()));
}

void Host::finalize() {
  expect_success(net_->finalize(context_), "finalize");
  context_ = nullptr;
}

void* Host::another_context() {
  void* context = nullptr;
  expect_success(init(&context, kUndefined), "init");
  return context;
}

int Host::device_count() const {
  int count = 0;
  expect_success(net_->devices(&count), "devices");
  return count;
}

NetPropertiesV12 Host::properties(int device) const {
  NetPropertiesV12 properties{};
  expect_success(net_->getProperties(device, &properties), "getProperties");
  return properties;
}

Listening Host::listen(std::optional<int> device) const {
  std::array<uint8_t, kHandleBytes + kGuardBytes> guarded;
  guarded.fill(kGuard);
  Listening listening{.comm = kGarbage};
  expect_success(
      net_->listen(context_, device.value_or(this->device()), guarded.data(), &listening.comm),
      "listen");
  expect(listening.comm != nullptr && listening.comm != kGarbage, "listen gives no listener");
  expect(std::all_of(guarded.begin() + kHandleBytes, guarded.end(),
                     [](uint8_t byte) { return byte == kGuard; }),
         "listen writes beyond the 128 bytes of a handle");
  std::memcpy(listening.handle.data(), guarded.data(), kHandleBytes);
  return listening;
}

void* Host::try_connect(HandleBytes& handle, std::optional<int> device) const {
  void* comm = kGarbage;
  DeviceHandle* device_handle = nullptr;
  expect_success(net_->connect(context_, device.value_or(this->device()), handle.data(), &comm,
                               &device_handle),
                 "connect");
  expect(comm != kGarbage, "connect leaves its output as it was");
  return comm;
}

void* Host::try_accept(void* listening) const {
  void* comm = kGarbage;
  DeviceHandle* device_handle = nullptr;
  expect_success(net_->accept(listening, &comm, &device_handle), "accept");
  expect(comm != kGarbage, "accept leaves its output as it was");
  return comm;
}

void* Host::connect(HandleBytes handle, std::optional<int> device) const {
  return poll_for("connect", [&] { return try_connect(handle, device); });
}

void* Host::accept(void* listening) const {
  return poll_for("accept", [&] { return try_accept(listening); });
}

bool Host::try_both(HandleBytes& handle, void* listening, Ends* ends,
                    std::optional<int> device) const {
  if (ends->send == nullptr) ends->send = try_connect(handle, device);
  if (ends->receive == nullptr) ends->receive = try_accept(listening);
  return ends->send != nullptr && ends->receive != nullptr;
}

Ends Host::connect_self() const {
  Listening listening = listen();
  Ends ends;
  poll_until("a connection of the process to itself",
             [&] { return try_both(listening.handle, listening.comm, &ends); });
  close_listen(listening.comm);
  return ends;
}

NcclResult Host::post_send(void* comm, const Part& part, void** request) const {
  *request = kGarbage;
  return net_->isend(comm, part.data.data(), part.data.size(), part.tag, part.memory, part.step,
                     request);
}

NcclResult Host::post_receive(void* comm, std::span<const Part> parts, void** request,
                              void* hint) const {
  std::array<void*, kMostParts> data;
  std::array<size_t, kMostParts> sizes;
  std::array<int, kMostParts> tags;
  std::array<void*, kMostParts> memories;
  std::array<void*, kMostParts> profiler_handles;
  expect(parts.size() <= kMostParts, "a receive of more buffers than any plugin takes");
  for (size_t i = 0; i < parts.size(); ++i) {
    data[i] = parts[i].data.data();
    sizes[i] = parts[i].data.size();
    tags[i] = parts[i].tag;
    memories[i] = parts[i].memory;
    profiler_handles[i] = parts[i].step;
  }
  *request = hint;
  return net_->irecv(comm, static_cast<int>(parts.size()), data.data(), sizes.data(), tags.data(),
                     memories.data(), profiler_handles.data(), request);
}

void* Host::try_send(void* comm, const Part& part) const {
  void* request = nullptr;
  expect_success(post_send(comm, part, &request), "isend");
  expect(request != kGarbage, "isend leaves its request as it was: NULL means 'again later'");
  return request;
}

void* Host::try_receive(void* comm, std::span<const Part> parts, void* hint) const {
  void* request = nullptr;
  expect_success(post_receive(comm, parts, &request, hint), "irecv");
  expect(request != hint, "irecv leaves its request as it was: NULL means 'again later'");
  return request;
}

void* Host::send(void* comm, const Part& part) const {
  return poll_for("a request for isend", [&] { return try_send(comm, part); });
}

void* Host::receive(void* comm, std::span<const Part> parts) const {
  return poll_for("a request for irecv", [&] { return try_receive(comm, parts); });
}

bool Host::test(void* request, std::span<int> sizes) const {
  int done = -1;
  expect_success(net_->test(request, &done, sizes.data()), "test");
  expect(done == 0 || done == 1, "test leaves 'done' as it was");
  return done == 1;
}

std::vector<std::vector<int>> Host::finish(std::vector<void*> requests) const {
  std::vector<std::vector<int>> sizes(requests.size(), std::vector<int>(kMostParts, -1));
  poll_until("the requests' end", [&] {
    for (size_t i = 0; i < requests.size(); ++i) {
      // What is done is never tested again.
      if (requests[i] != nullptr && test(requests[i], sizes[i])) requests[i] = nullptr;
    }
    return std::all_of(requests.begin(), requests.end(),
                       [](const void* request) { return request == nullptr; });
  });
  return sizes;
}

Registration::Registration(const Host& host, void* comm, std::span<uint8_t> data)
    : host_(host), comm_(comm) {
  expect_success(host.net().regMr(comm, data.data(), data.size(), kPointerHost, &memory_), "regMr");
}

Registration::~Registration() {
  if (comm_ != nullptr) host_.net().deregMr(comm_, memory_);
}

void Registration::deregister() {
  expect_success(host_.net().deregMr(std::exchange(comm_, nullptr), memory_), "deregMr");
}

Pages::Pages(size_t bytes) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(pages != MAP_FAILED,
         fmt::format("cannot map {} bytes: use smaller or fewer messages", bytes));
  bytes_ = {static_cast<uint8_t*>(pages), bytes};
}

Pages::~Pages() { munmap(bytes_.data(), bytes_.size()); }

void Pages::forbid_access() const {
  expect(mprotect(bytes_.data(), bytes_.size(), PROT_NONE) == 0, "mprotect failed");
}

}  // namespace pacecar::nccl
