#include "net_plugin/host/host.h"

#include <algorithm>
#include <cstring>

namespace pacecar::nccl {
namespace {

constexpr size_t kMostParts = 16;
constexpr size_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xA5;

// Polls `step` until it returns something.
template <typename Step>
void* poll_for(std::string_view what, const Step& step) {
  void* found = nullptr;
  poll_until(what, [&] { return (found = step()) != nullptr; });
  return found;
}

}  // namespace

Listening Host::listen(std::optional<int> device) const {
  std::array<uint8_t, kHandleBytes + kGuardBytes> guarded;
  guarded.fill(kGuard);
  Listening listening{.comm = kGarbage};
  expect_success(
      net().listen(context(), device.value_or(this->device()), guarded.data(), &listening.comm),
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
  expect_success(net().connect(context(), device.value_or(this->device()), handle.data(), &comm,
                               &device_handle),
                 "connect");
  expect(comm != kGarbage, "connect leaves its output as it was");
  return comm;
}

void* Host::try_accept(void* listening) const {
  void* comm = kGarbage;
  DeviceHandle* device_handle = nullptr;
  expect_success(net().accept(listening, &comm, &device_handle), "accept");
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
  return net().isend(comm, part.data.data(), part.data.size(), part.tag, part.memory, nullptr,
                     request);
}

NcclResult Host::post_receive(void* comm, std::span<const Part> parts, void** request,
                              void* hint) const {
  std::array<void*, kMostParts> data;
  std::array<size_t, kMostParts> sizes;
  std::array<int, kMostParts> tags;
  std::array<void*, kMostParts> memories;
  std::array<void*, kMostParts> profiler_handles{};
  expect(parts.size() <= kMostParts, "a receive of more buffers than any plugin takes");
  for (size_t i = 0; i < parts.size(); ++i) {
    data[i] = parts[i].data.data();
    sizes[i] = parts[i].data.size();
    tags[i] = parts[i].tag;
    memories[i] = parts[i].memory;
  }
  *request = hint;
  return net().irecv(comm, static_cast<int>(parts.size()), data.data(), sizes.data(), tags.data(),
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
  expect_success(net().test(request, &done, sizes.data()), "test");
  expect(done == 0 || done == 1, "test leaves 'done' as it was");
  return done == 1;
}

std::vector<std::vector<int>> Host::finish(std::vector<void*> requests) const {
  std::vector<std::vector<int>> sizes(requests.size(), std::vector<int>(kMostParts, -1));
  poll_until("the requests' end", [&] {
    for (size_t i = 0; i < requests.size(); ++i) {
      // A request that is done is never tested again.
      if (requests[i] != nullptr && test(requests[i], sizes[i])) requests[i] = nullptr;
    }
    return std::all_of(requests.begin(), requests.end(),
                       [](const void* request) { return request == nullptr; });
  });
  return sizes;
}

}  // namespace pacecar::nccl
