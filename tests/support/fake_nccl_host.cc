#include "tests/support/fake_nccl_host.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace pacecar::test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

constexpr int kMaxBuffers = 8;
constexpr std::chrono::seconds kPatience{30};
// What an output holds before a call: nothing a plugin may leave there.
void* const kGarbage = reinterpret_cast<void*>(0x1);

std::mutex lines_mutex;
std::vector<LogLine>& lines() {
  static std::vector<LogLine> instance;
  return instance;
}

void capture(LogSeverity severity, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(lines_mutex);
  lines().push_back({severity, text.data()});
}

int wanted_version() {
  const char* const wanted = std::getenv("PLUGIN_TEST_VERSION");
  return wanted == nullptr ? nccl::kNewestVersion : std::stoi(wanted);
}

void require(NcclResult result, const std::string& what) {
  if (result == NcclResult::kSuccess) return;
  throw HostError(what + " returned " + std::to_string(static_cast<int>(result)));
}

uint8_t byte_of(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15U + index / 8;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x ^= x >> 27;
  return static_cast<uint8_t>(x >> (8 * (index % 8)));
}

}  // namespace

std::vector<LogLine> logged_lines() {
  const std::lock_guard lock(lines_mutex);
  return lines();
}

bool was_logged(LogSeverity severity, const std::string& part) {
  const std::vector<LogLine> all = logged_lines();
  return std::any_of(all.begin(), all.end(), [&](const LogLine& line) {
    return line.severity == severity && line.text.find(part) != std::string::npos;
  });
}

void poll_until(const std::string& what, const std::function<bool()>& step) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!step()) {
    if (std::chrono::steady_clock::now() > deadline) throw HostError(what + " took too long");
    sched_yield();
  }
}

void fill(std::span<uint8_t> data, uint64_t seed) {
  for (size_t i = 0; i < data.size(); ++i) data[i] = byte_of(seed, i);
}

size_t count_wrong(std::span<const uint8_t> data, uint64_t seed) {
  size_t wrong = 0;
  for (size_t i = 0; i < data.size(); ++i) wrong += data[i] != byte_of(seed, i);
  return wrong;
}

FakeNcclHost::FakeNcclHost(const std::string& plugin_path)
    : FakeNcclHost(plugin_path, wanted_version()) {}

FakeNcclHost::FakeNcclHost(const std::string& plugin_path, int version)
    : library_(dlopen(plugin_path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) throw HostError(dlerror());
  net_ = nccl::find_net(library_, version);
  if (net_ == nullptr) throw HostError("no table of version " + std::to_string(version));
}

FakeNcclHost::~FakeNcclHost() {
  if (context_ != nullptr) net_->finalize(context_);
  net_.reset();
  dlclose(library_);
}

NcclResult FakeNcclHost::init(int traffic_class) {
  context_ = kGarbage;
  return net_->init(&context_, 0x1234, {traffic_class}, capture, nullptr);
}

void FakeNcclHost::finalize() {
  require(net_->finalize(context_), "finalize");
  context_ = nullptr;
}

Listening FakeNcclHost::listen(int device) {
  Listening listening;
  listening.comm = kGarbage;
  require(net_->listen(context_, device, listening.handle.data(), &listening.comm), "listen");
  return listening;
}

void* FakeNcclHost::try_connect(HandleBytes& handle, int device) {
  void* comm = kGarbage;
  nccl::DeviceHandle* device_handle = nullptr;
  require(net_->connect(context_, device, handle.data(), &comm, &device_handle), "connect");
  return comm;
}

void* FakeNcclHost::try_accept(void* listen_comm) {
  void* comm = kGarbage;
  nccl::DeviceHandle* device_handle = nullptr;
  require(net_->accept(listen_comm, &comm, &device_handle), "accept");
  return comm;
}

void* FakeNcclHost::connect(HandleBytes handle) {
  void* comm = nullptr;
  poll_until("connect", [&] { return (comm = try_connect(handle)) != nullptr; });
  return comm;
}

void* FakeNcclHost::accept(void* listen_comm) {
  void* comm = nullptr;
  poll_until("accept", [&] { return (comm = try_accept(listen_comm)) != nullptr; });
  return comm;
}

ConnectionPair FakeNcclHost::connect_to_self() {
  Listening listening = listen();
  ConnectionPair pair;
  poll_until("connecting to this process", [&] {
    if (pair.send == nullptr) pair.send = try_connect(listening.handle);
    if (pair.receive == nullptr) pair.receive = try_accept(listening.comm);
    return pair.send != nullptr && pair.receive != nullptr;
  });
  require(net_->closeListen(listening.comm), "closeListen");
  return pair;
}

void FakeNcclHost::close(const ConnectionPair& pair) {
  require(net_->closeSend(pair.send), "closeSend");
  require(net_->closeRecv(pair.receive), "closeRecv");
}

HostBuffer::HostBuffer(const FakeNcclHost& host, void* comm, size_t bytes)
    : net_(host.net()), comm_(comm), bytes_(bytes) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw HostError("mmap failed");
  data_ = static_cast<uint8_t*>(pages);
  require(net_.regMr(comm_, data_, bytes_, nccl::kPointerHost, &memory_), "regMr");
}

HostBuffer::~HostBuffer() {
  if (memory_ != nullptr) net_.deregMr(comm_, memory_);
  munmap(data_, bytes_);
}

void HostBuffer::deregister() {
  require(net_.deregMr(comm_, memory_), "deregMr");
  memory_ = nullptr;
}

void HostBuffer::forbid_access() {
  if (mprotect(data_, bytes_, PROT_NONE) != 0) throw HostError("mprotect failed");
}

NcclResult try_send(const FakeNcclHost& host, void* comm, const Posted& message, void** request) {
  *request = kGarbage;
  return host.net().isend(comm, message.data.data(), message.data.size(), message.tag,
                          message.memory, nullptr, request);
}

NcclResult try_receive(const FakeNcclHost& host, void* comm, std::span<const Posted> buffers,
                       void** request) {
  std::array<void*, kMaxBuffers> data{};
  std::array<size_t, kMaxBuffers> sizes{};
  std::array<int, kMaxBuffers> tags{};
  std::array<void*, kMaxBuffers> memories{};
  std::array<void*, kMaxBuffers> profiler_handles{};
  for (size_t i = 0; i < buffers.size(); ++i) {
    data[i] = buffers[i].data.data();
    sizes[i] = buffers[i].data.size();
    tags[i] = buffers[i].tag;
    memories[i] = buffers[i].memory;
  }
  *request = kGarbage;
  return host.net().irecv(comm, static_cast<int>(buffers.size()), data.data(), sizes.data(),
                          tags.data(), memories.data(), profiler_handles.data(), request);
}

void* send(const FakeNcclHost& host, void* comm, const Posted& message) {
  void* request = nullptr;
  poll_until("isend", [&] {
    require(try_send(host, comm, message, &request), "isend");
    return request != nullptr;
  });
  return request;
}

void* receive(const FakeNcclHost& host, void* comm, std::span<const Posted> buffers) {
  void* request = nullptr;
  poll_until("irecv", [&] {
    require(try_receive(host, comm, buffers, &request), "irecv");
    return request != nullptr;
  });
  return request;
}

void* receive(const FakeNcclHost& host, void* comm, const Posted& buffer) {
  return receive(host, comm, std::span(&buffer, 1));
}

NcclResult wait(const FakeNcclHost& host, void* request, std::vector<int>* sizes) {
  std::array<int, kMaxBuffers> figures{};
  NcclResult result = NcclResult::kSuccess;
  poll_until("a request", [&] {
    int done = 2;
    result = host.net().test(request, &done, figures.data());
    return result != NcclResult::kSuccess || done == 1;
  });
  if (sizes != nullptr) sizes->assign(figures.begin(), figures.end());
  return result;
}

int complete(const FakeNcclHost& host, void* request) {
  std::vector<int> sizes;
  require(wait(host, request, &sizes), "test");
  return sizes.front();
}

}  // namespace pacecar::test
