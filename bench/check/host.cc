#include "bench/check/host.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/perf/clock.h"

namespace pacecar::check {
namespace {

using nccl::NcclResult;
using perf::steady_now;

constexpr Duration kPatience = Duration::from_s(20);
constexpr size_t kMostParts = 16;
constexpr size_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xA5;
// What an output holds before a call: nothing that a plugin may leave there.
void* const kGarbage = reinterpret_cast<void*>(uintptr_t{0x5A5A5A50});

// NCCL's logger has no context argument.
Arena* g_arena = nullptr;

void keep_warnings(nccl::LogSeverity severity, unsigned long, const char*, int, const char* format,
                   ...) {
  if (severity != nccl::LogSeverity::kWarn || g_arena == nullptr) return;
  std::array<char, 512> line{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  g_arena->said.set(line.data());
}

}  // namespace

void expect(bool holds, std::string_view what) {
  if (!holds) throw Violation(std::string(what));
}

void expect_success(NcclResult result, std::string_view call) {
  if (result == NcclResult::kSuccess) return;
  throw Violation(fmt::format("{} returns {}", call, static_cast<int>(result)));
}

void poll_until(std::string_view what, const std::function<bool()>& step) {
  const Instant deadline = steady_now() + kPatience;
  while (!step()) {
    if (steady_now() > deadline) {
      throw Violation(fmt::format("{}: not after {:.0f} s", what, kPatience.seconds()));
    }
    sched_yield();
  }
}

Host::Host(Arena& arena, const Subject& subject, int rank)
    : arena_(arena), subject_(subject), rank_(rank) {
  g_arena = &arena;
  library_ = dlopen(subject.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw Violation(fmt::format("it cannot be loaded: {}", dlerror()));
  net_ =
      subject.version == 0 ? nccl::find_net(library_) : nccl::find_net(library_, subject.version);
  if (net_ != nullptr) return;
  throw Violation(subject.version == 0
                      ? fmt::format("it exports no ncclNetPlugin_v{} to v{}", nccl::kOldestVersion,
                                    nccl::kNewestVersion)
                      : fmt::format("it exports no ncclNetPlugin_v{}", subject.version));
}

Host::~Host() {
  if (context_ != nullptr) net_->finalize(context_);
}

void Host::start() {
  if (context_ != nullptr) return;
  context_ = another_context();
  int count = 0;
  expect_success(net_->devices(&count), "devices");
  expect(subject_.device >= 0 && subject_.device < count,
         fmt::format("it has {} devices, and no number {}", count, subject_.device));
}

void Host::finish() {
  expect_success(net_->finalize(context_), "finalize");
  context_ = nullptr;
}

void* Host::another_context() {
  void* context = kGarbage;
  expect_success(net_->init(&context, 0x1234, {nccl::kUndefined}, keep_warnings, nullptr), "init");
  return context;
}

nccl::NetPropertiesV12 Host::properties(int device) const {
  nccl::NetPropertiesV12 properties{};
  expect_success(net_->getProperties(device, &properties), "getProperties");
  return properties;
}

void* Host::listen(HandleBytes* handle) {
  std::array<uint8_t, nccl::kHandleBytes + kGuardBytes> guarded;
  guarded.fill(kGuard);
  void* listening = kGarbage;
  expect_success(net_->listen(context_, subject_.device, guarded.data(), &listening), "listen");
  expect(listening != nullptr && listening != kGarbage, "listen gives no listener");
  for (size_t i = nccl::kHandleBytes; i < guarded.size(); ++i) {
    expect(guarded[i] == kGuard, "listen writes beyond the 128 bytes of a handle");
  }
  std::memcpy(handle->data(), guarded.data(), handle->size());
  return listening;
}

void* Host::try_connect(HandleBytes& handle) {
  void* comm = kGarbage;
  nccl::DeviceHandle* device_handle = nullptr;
  expect_success(net_->connect(context_, subject_.device, handle.data(), &comm, &device_handle),
                 "connect");
  expect(comm != kGarbage, "connect leaves its output as it was");
  return comm;
}

void* Host::try_accept(void* listening) {
  void* comm = kGarbage;
  nccl::DeviceHandle* device_handle = nullptr;
  expect_success(net_->accept(listening, &comm, &device_handle), "accept");
  expect(comm != kGarbage, "accept leaves its output as it was");
  return comm;
}

void Host::close_listen(void* listening) const {
  expect_success(net_->closeListen(listening), "closeListen");
}

Ends Host::connect_self() {
  start();
  HandleBytes handle{};
  void* const listening = listen(&handle);
  Ends ends;
  poll_until("a connection of the process to itself", [&] {
    if (ends.send == nullptr) ends.send = try_connect(handle);
    if (ends.receive == nullptr) ends.receive = try_accept(listening);
    return ends.send != nullptr && ends.receive != nullptr;
  });
  close_listen(listening);
  return ends;
}

void* Host::connect_ranks() {
  start();
  void* comm = nullptr;
  if (rank_ == 0) {
    void* const listening = listen(&arena_.handles[0]);
    barrier();
    poll_until("accept", [&] { return (comm = try_accept(listening)) != nullptr; });
    close_listen(listening);
  } else {
    barrier();
    HandleBytes handle = arena_.handles[0];
    poll_until("connect", [&] { return (comm = try_connect(handle)) != nullptr; });
  }
  return comm;
}

void Host::close(const Ends& ends) const {
  expect_success(net_->closeSend(ends.send), "closeSend");
  expect_success(net_->closeRecv(ends.receive), "closeRecv");
}

void Host::close_rank(void* comm) const {
  if (rank_ == 0) {
    expect_success(net_->closeRecv(comm), "closeRecv");
  } else {
    expect_success(net_->closeSend(comm), "closeSend");
  }
}

void* Host::try_send(void* comm, std::span<uint8_t> data, int tag, void* memory) const {
  void* request = kGarbage;
  expect_success(net_->isend(comm, data.data(), data.size(), tag, memory, nullptr, &request),
                 "isend");
  expect(request != kGarbage, "isend leaves its request as it was: NULL means 'again later'");
  return request;
}

void* Host::try_receive(void* comm, std::span<const Part> parts, void* hint) const {
  std::array<void*, kMostParts> data{};
  std::array<size_t, kMostParts> sizes{};
  std::array<int, kMostParts> tags{};
  std::array<void*, kMostParts> memories{};
  std::array<void*, kMostParts> profiler_handles{};
  for (size_t i = 0; i < parts.size(); ++i) {
    data[i] = parts[i].data.data();
    sizes[i] = parts[i].data.size();
    tags[i] = parts[i].tag;
    memories[i] = parts[i].memory;
  }
  void* request = hint;
  expect_success(net_->irecv(comm, static_cast<int>(parts.size()), data.data(), sizes.data(),
                             tags.data(), memories.data(), profiler_handles.data(), &request),
                 "irecv");
  expect(request != hint, "irecv leaves its request as it was: NULL means 'again later'");
  return request;
}

void* Host::send(void* comm, std::span<uint8_t> data, int tag, void* memory) const {
  void* request = nullptr;
  poll_until("a request for isend",
             [&] { return (request = try_send(comm, data, tag, memory)) != nullptr; });
  return request;
}

void* Host::receive(void* comm, std::span<const Part> parts) const {
  void* request = nullptr;
  poll_until("a request for irecv",
             [&] { return (request = try_receive(comm, parts, kGarbage)) != nullptr; });
  return request;
}

std::vector<std::vector<int>> Host::finish(std::vector<void*> requests) const {
  std::vector<std::vector<int>> sizes(requests.size(), std::vector<int>(kMostParts, -1));
  poll_until("the requests' end", [&] {
    bool all = true;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == nullptr) continue;  // done, and never tested again
      int done = -1;
      expect_success(net_->test(requests[i], &done, sizes[i].data()), "test");
      expect(done == 0 || done == 1, "test leaves 'done' as it was");
      if (done == 1) requests[i] = nullptr;
      all = all && done == 1;
    }
    return all;
  });
  return sizes;
}

void Host::die() {
  ++arena_.finished;
  kill(getpid(), SIGKILL);
  std::abort();
}

NcclResult Host::result_of(void* request) const {
  std::array<int, kMostParts> sizes{};
  NcclResult result = NcclResult::kSuccess;
  poll_until("a request's end", [&] {
    int done = 0;
    result = net_->test(request, &done, sizes.data());
    return result != NcclResult::kSuccess || done == 1;
  });
  return result;
}

void Host::barrier() {
  const uint32_t round = arena_.barrier_round.load();
  if (arena_.arrived.fetch_add(1) + 1 == kMaxRanks) {
    arena_.arrived.store(0);
    arena_.barrier_round.store(round + 1);
    return;
  }
  poll_until("the other process", [&] { return arena_.barrier_round.load() != round; });
}

Buffer::Buffer(const Host& host, void* comm, size_t bytes)
    : host_(host), comm_(comm), size_(bytes) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::runtime_error("no memory for the check itself");
  data_ = static_cast<uint8_t*>(pages);
  expect_success(host.net().regMr(comm, data_, bytes, nccl::kPointerHost, &memory_), "regMr");
}

Buffer::~Buffer() {
  deregister();
  munmap(data_, size_);
}

void Buffer::deregister() {
  if (comm_ == nullptr) return;
  host_.net().deregMr(comm_, memory_);
  comm_ = nullptr;
}

void Buffer::forbid_access() {
  if (mprotect(data_, size_, PROT_NONE) != 0) throw std::runtime_error("mprotect failed");
}

}  // namespace pacecar::check
