// The objects that programs of librdmacm hold: event channels, events and ids, each of which begins
// with the structure that rdma_cma.h declares. Thread rule: one thread of the program uses an id at
// a time; what a peer's message changes is guarded by the NIC's mutex, listeners and events by
// Process::mutex, which is taken last.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "net_plugin/verbs/cm/agent.h"
#include "net_plugin/verbs/cm/core/connection.h"
#include "net_plugin/verbs/objects.h"
#include "transport/base/file_descriptor.h"

namespace pacecar::ibverbs::cm {

struct Id;

struct Event : rdma_cm_event {
  Id* owner = nullptr;              // rdma_destroy_id waits until its events are acknowledged
  std::array<uint8_t, 224> data{};  // private
};

// Its descriptor is an eventfd that counts unread events. A thread that waits at it goes on waiting
// when another thread destroys the channel; programs rely on this.
struct Channel : rdma_event_channel {
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void put(Event* event);                     // With Process::mutex.
  std::vector<Event*> take(const Id& owner);  // Removes the unread events of an id.

  std::vector<Event*> unread;  // guarded by Process::mutex
};

// A device that ids use. It is never closed, as programs may keep its objects.
struct CmDevice {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;  // for ids without a domain of the program
  std::unique_ptr<Agent> agent;

  ProcessNic& nic() { return nic_of(context); }
  Address address() { return nic().address(); }
  // For kRequest or kFind: returns the new end, already added to the agent; or null with the reason
  // of the reject (0: no reject, as the listener's backlog is full).
  End* on_request(const Message& request, const Peer& from, uint16_t* reason);
};

std::vector<CmDevice*> all_devices();

struct Id final : rdma_cm_id {
  Id(rdma_event_channel* events, void* user, rdma_port_space space);

  bool is_datagram() const { return ps == RDMA_PS_UDP; }
  Channel& events() { return *static_cast<Channel*>(channel); }
  void use(CmDevice& used);
  void set_source(const Address& from);
  void set_destination(const Address& to);

  const OwnProcess maker;
  CmDevice* device = nullptr;
  std::unique_ptr<End> end;  // of its connection
  bool synchronous = false;  // calls wait for their events
  bool listening = false;
  bool any_address = false;  // of a listener: bound to the unspecified address
  bool reuse_address = false;
  size_t backlog = 0;
  // Number of unanswered requests, shared by the listener and their ids, which may outlive it.
  std::shared_ptr<size_t> waiting;
  FileDescriptor reservation;   // of the port
  uint32_t unacknowledged = 0;  // events
  ibv_sa_path_rec path{};
  std::optional<ibv_qp_init_attr> made_for;  // rdma_create_ep: for queue pairs of requests
  // The parameters that both ends have agreed on.
  uint32_t first_psn = 0;
  uint32_t peer_queue_pair = 0;
  uint32_t peer_psn = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retries = 7;
  uint8_t not_ready_retries = 7;
  uint8_t ack_timeout = 0;  // 0: the default
};

inline Id& id_of(rdma_cm_id* id) { return *static_cast<Id*>(id); }
// Begins a call: `own` is the id. It fails in a forked child of the process that made the id.
#define OWN_ID(own, id) \
  Id& own = id_of(id);  \
  if (own.maker.forked()) return failed(error_in_child(__func__))

struct Process {
  std::mutex mutex;
  std::condition_variable acknowledged;
  std::vector<Id*> listeners;
  uint64_t channels_made = 0;
  bool is_child = false;                                   // forked from a process with ids
  std::map<const rdma_event_channel*, uint64_t> channels;  // and their numbers
};
Process& process();

// --- events ---
// Queues an event on the owner's channel; `private_data` is copied into the event.
void raise(Id& owner, const rdma_cm_event& event, std::span<const uint8_t> private_data = {});
void raise_locked(Id& owner, const rdma_cm_event& event, std::span<const uint8_t> private_data);
void raise(Id& id, rdma_cm_event_type type, int status = 0);
// Drops unread events and waits until the others are acknowledged. Returns unread requests' ids.
std::vector<Id*> drop_events(Id& owner);
int complete(Id& id);  // Ends a call of a synchronous id: waits for its event. 0, or -1 with errno.
// The event that complete() left in one id becomes that of another.
void pass_event(Id& from, Id& to);

// --- queue pairs ---
// The attributes of ibv_modify_qp that bring the id's queue pair into a state.
bool attributes_for(Id& id, ibv_qp_state state, ibv_qp_attr* attr, int* mask);
bool bring_up(Id& id);  // Brings the queue pair into RTS. With the NIC's mutex.
void fail_queue_pair(Id& id);

// --- addresses ---
uint16_t port_of(const Id& id, bool source);
bool reserve_port(Id& id);  // Reserves the id's port on this host. False with errno.
// The device with the address; for the unspecified address, any device. Null with errno.
CmDevice* device_at(const Address& local);

}  // namespace pacecar::ibverbs::cm
