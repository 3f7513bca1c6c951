// The devices that ids use, and the requests that they receive.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "net_plugin/verbs/cm/ids.h"
#include "transport/engine/clock.h"
#include "transport/wire/address.h"

namespace pacecar::ibverbs::cm {
namespace {

// How long the exit of a process waits for the answers of peers and for locks of other threads.
constexpr Duration kExitLimit = Duration::from_ms(1500);

struct Devices {
  std::mutex mutex;  // taken before the mutex of a NIC
  std::map<ibv_device*, std::unique_ptr<CmDevice>> open;
};

// A forked child begins anew.
Devices& devices() {
  static Devices* instance = new Devices;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { instance = new Devices; });
  return *instance;
}

// Calls `step` with the NIC's lock held until it returns true. Gives up in time, as the thread that
// calls exit() may itself hold the lock.
template <typename Step>
void step_until(Instant give_up, ProcessNic& nic, Step step) {
  while (clock_now() < give_up) {
    if (nic.mutex().try_lock()) {
      const std::lock_guard lock(nic.mutex(), std::adopt_lock);
      if (step()) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Disconnects all connections when the process exits, as the kernel does for other devices.
void disconnect_peers() {
  const std::unique_lock lock(devices().mutex, std::try_to_lock);
  if (!lock) return;
  const Instant give_up = clock_now() + kExitLimit;
  const auto for_each = [&](auto step) {
    for (const auto& [id, device] : devices().open) {
      if (device == nullptr) continue;
      step_until(give_up, device->nic(), [&device = *device, &step] { return step(device); });
    }
  };
  for_each([](CmDevice& device) {
    device.agent->disconnect_all();
    device.nic().send_posted();
    return true;
  });
  for_each([](CmDevice& device) {
    device.nic().turn();
    return device.agent->all_disconnected();
  });
}

// Null with errno.
CmDevice* opened(ibv_device* device) {
  const std::lock_guard lock(devices().mutex);
  auto& known = devices().open[device];
  if (known != nullptr) return known.get();
  auto made = std::make_unique<CmDevice>();
  made->context = ibv_open_device(device);
  if (made->context == nullptr) return nullptr;
  made->pd = ibv_alloc_pd(made->context);
  {
    const Call call(made->nic());
    auto agent = Agent::open(*made);
    if (agent) made->agent = std::move(*agent);
  }
  if (made->agent == nullptr) {
    ibv_dealloc_pd(made->pd);
    ibv_close_device(made->context);
    return no_object(ENOMEM);
  }
  known = std::move(made);
  [[maybe_unused]] static const int at_exit = std::atexit(disconnect_peers);
  return known.get();
}

// With the process's mutex.
Id* listener_for(const Message& request, CmDevice& device) {
  for (Id* const id : process().listeners) {
    const uint16_t port = port_of(*id, true);
    if (service_of(static_cast<uint16_t>(id->ps), port) != request.service) continue;
    if (id->any_address || id->device == &device) return id;
  }
  return nullptr;
}

// With the process's mutex.
void raise_request(Id& listener, Id& id, const Message& request) {
  rdma_cm_event event{.id = &id, .listen_id = &listener, .event = RDMA_CM_EVENT_CONNECT_REQUEST};
  const auto user =
      std::span(request.private_data).first(private_bytes(request.kind)).subspan(IpHeader::kBytes);
  if (id.is_datagram()) return raise_locked(listener, event, user);
  event.param.conn = {.responder_resources = request.initiator_depth,
                      .initiator_depth = request.responder_resources,
                      .flow_control = request.flow_control,
                      .retry_count = request.retries,
                      .rnr_retry_count = request.not_ready_retries,
                      .srq = request.shared_receives,
                      .qp_num = request.queue_pair};
  raise_locked(listener, event, user);
}

}  // namespace

CmDevice* device_at(const Address& local) {
  for (ibv_device* const device : own_devices()) {
    const auto addresses = static_cast<Device*>(device)->interface().addresses;
    const bool found = std::ranges::any_of(
        addresses, [&](const Address& address) { return address.ip == local.ip; });
    if (found || is_unspecified(local)) return opened(device);
  }
  return no_object(ENODEV);
}

std::vector<CmDevice*> all_devices() {
  std::vector<CmDevice*> all;
  for (ibv_device* const device : own_devices()) {
    if (CmDevice* const one = opened(device); one != nullptr) all.push_back(one);
  }
  return all;
}

End* CmDevice::on_request(const Message& request, const Peer& from, uint16_t* reason) {
  *reason = kInvalidService;
  const auto header = decode_ip(std::span(request.private_data).first<IpHeader::kBytes>());
  if (!header) return nullptr;
  const std::lock_guard lock(process().mutex);
  Id* const listener = listener_for(request, *this);
  if (listener == nullptr || listener->is_datagram() != (request.kind == Kind::kFind)) {
    return nullptr;
  }
  auto made = std::make_unique<Id>(listener->channel, listener->context, listener->ps);
  made->use(*this);
  if (!listener->is_datagram()) {
    // No answer could tell the peer that our MTU is smaller.
    *reason = kInvalidMtu;
    if (request.mtu < IBV_MTU_256 || request.mtu > made->mtu) return nullptr;
    made->mtu = static_cast<ibv_mtu>(request.mtu);
  }
  *reason = 0;
  if (*listener->waiting >= listener->backlog) return nullptr;  // it is busy
  Address own = address();
  own.port = port_of(*listener, true);
  made->set_source(own);
  made->set_destination({.ip = from.gid, .scope_id = 0, .port = header->port});
  made->waiting = listener->waiting;
  made->peer_queue_pair = request.queue_pair;
  made->peer_psn = request.psn;
  made->responder_resources = std::min(request.initiator_depth, kMaxReads);
  made->initiator_depth = std::min(request.responder_resources, kMaxReads);
  made->retries = request.retries;
  made->not_ready_retries = request.not_ready_retries;
  made->end = std::make_unique<End>(*made, agent->new_id(), nic().connect_limit());
  made->end->peer = from;
  made->end->connection.on_request(request);
  agent->add(*made->end);
  ++*made->waiting;
  raise_request(*listener, *made, request);
  return made.release()->end.get();
}

extern "C" {

PACECAR_VERBS ibv_context** rdma_get_devices(int* count) {
  const auto all = all_devices();
  if (count != nullptr) *count = static_cast<int>(all.size());
  if (all.empty()) return no_object(ENODEV);
  auto** const list = static_cast<ibv_context**>(calloc(all.size() + 1, sizeof(ibv_context*)));
  if (list == nullptr) return nullptr;
  std::ranges::transform(all, list, &CmDevice::context);
  return list;
}

PACECAR_VERBS void rdma_free_devices(ibv_context** list) { free(list); }

}  // extern "C"
}  // namespace pacecar::ibverbs::cm
