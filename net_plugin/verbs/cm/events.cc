// Event channels and events.
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "net_plugin/verbs/cm/ids.h"

namespace pacecar::ibverbs::cm {

// Never destroyed: the keeper may raise events as the process ends. A forked child begins anew.
Process& process() {
  static Process* instance = new Process;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { instance = new Process{.is_child = true}; });
  return *instance;
}

Channel::Channel() : rdma_event_channel{.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)} {
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "no event channel");
  const std::lock_guard lock(process().mutex);
  process().channels[this] = ++process().channels_made;
}

Channel::~Channel() {
  const std::lock_guard lock(process().mutex);
  process().channels.erase(this);
  for (Event* const event : unread) delete event;
  close(fd);
}

void Channel::put(Event* event) {
  unread.push_back(event);
  eventfd_write(fd, 1);
}

// A thread that was woken for one of these events gets another one, or waits again.
std::vector<Event*> Channel::take(const Id& owner) {
  std::vector<Event*> taken;
  std::erase_if(unread, [&](Event* event) {
    if (event->owner == &owner) taken.push_back(event);
    return event->owner == &owner;
  });
  for (size_t left = taken.size(); left > 0; --left) {
    uint64_t count = 0;
    const iovec piece{&count, sizeof count};
    if (preadv2(fd, &piece, 1, -1, RWF_NOWAIT) < 0) break;  // before Linux 5.8: it stays readable
  }
  return taken;
}

void raise_locked(Id& owner, const rdma_cm_event& event, std::span<const uint8_t> private_data) {
  auto* const made = new Event;
  static_cast<rdma_cm_event&>(*made) = event;
  made->owner = &owner;
  std::ranges::copy(private_data, made->data.begin());
  // param.conn and param.ud both begin with the private data.
  made->param.conn.private_data = private_data.empty() ? nullptr : made->data.data();
  made->param.conn.private_data_len = static_cast<uint8_t>(private_data.size());
  owner.events().put(made);
}

void raise(Id& owner, const rdma_cm_event& event, std::span<const uint8_t> private_data) {
  const std::lock_guard lock(process().mutex);
  raise_locked(owner, event, private_data);
}

void raise(Id& id, rdma_cm_event_type type, int status) {
  raise(id, rdma_cm_event{.id = &id, .event = type, .status = status});
}

namespace {

// 0: the channel is destroyed. With Process::mutex.
uint64_t number_of(const rdma_event_channel* channel) {
  const auto found = process().channels.find(channel);
  return found == process().channels.end() ? 0 : found->second;
}

[[noreturn]] void wait_for_ever(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  for (;;) pause();
}

// Null with errno, as read(2). If another thread destroys the channel meanwhile or just before, as
// rping does, this thread waits for ever, as it would with the kernel's channels.
Event* take(rdma_event_channel* given) {
  auto* const channel = static_cast<Channel*>(given);
  std::unique_lock lock(process().mutex);
  const uint64_t number = number_of(channel);
  if (number == 0 && process().is_child) return no_object(error_in_child("rdma_get_cm_event"));
  if (number == 0) wait_for_ever(lock);
  // The channel's own may be closed meanwhile, and its number used for another file.
  const FileDescriptor fd(fcntl(channel->fd, F_DUPFD_CLOEXEC, 0));
  if (!fd) return no_object(errno);
  for (;;) {
    lock.unlock();
    eventfd_t count = 0;
    const bool readable = eventfd_read(fd.get(), &count) == 0;
    const int error = errno;
    lock.lock();
    if (number_of(channel) != number) wait_for_ever(lock);
    if (!readable) return no_object(error);
    if (channel->unread.empty()) continue;
    Event* const event = channel->unread.front();
    channel->unread.erase(channel->unread.begin());
    ++event->owner->unacknowledged;
    return event;
  }
}

int acknowledge(Event* event) {
  const std::lock_guard lock(process().mutex);
  --event->owner->unacknowledged;
  process().acknowledged.notify_all();
  delete event;
  return 0;
}

int status_of(const rdma_cm_event& event) {
  if (event.status == 0) return 0;
  return event.event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : std::abs(event.status);
}

}  // namespace

std::vector<Id*> drop_events(Id& owner) {
  std::vector<Id*> unseen;
  std::unique_lock lock(process().mutex);
  for (Event* const event : owner.events().take(owner)) {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) unseen.push_back(&id_of(event->id));
    delete event;
  }
  process().acknowledged.wait(lock, [&] { return owner.unacknowledged == 0; });
  return unseen;
}

int complete(Id& id) {
  if (!id.synchronous) return 0;
  if (id.event != nullptr) acknowledge(static_cast<Event*>(id.event));
  id.event = take(&id.events());
  if (id.event == nullptr) return -1;
  const int status = status_of(*id.event);
  return status == 0 ? 0 : failed(status);
}

void pass_event(Id& from, Id& to) {
  const std::lock_guard lock(process().mutex);
  static_cast<Event*>(from.event)->owner = &to;
  --from.unacknowledged;
  ++to.unacknowledged;
  to.event = std::exchange(from.event, nullptr);
}

extern "C" {

PACECAR_VERBS rdma_event_channel* rdma_create_event_channel() {
  return made([]() -> rdma_event_channel* { return new Channel; });
}

PACECAR_VERBS void rdma_destroy_event_channel(rdma_event_channel* channel) {
  delete static_cast<Channel*>(channel);
}

PACECAR_VERBS int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  *event = take(channel);
  return *event == nullptr ? -1 : 0;
}

PACECAR_VERBS int rdma_ack_cm_event(rdma_cm_event* event) {
  return event == nullptr ? failed(EINVAL) : acknowledge(static_cast<Event*>(event));
}

PACECAR_VERBS const char* rdma_event_str(rdma_cm_event_type event) {
  static constexpr std::array kNames = {
      "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
      "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
      "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
      "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
      "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
      "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  const auto index = static_cast<size_t>(event);
  return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}

// Unread events move to the new channel.
PACECAR_VERBS int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  OWN_ID(moved, id);
  auto* const own = moved.synchronous ? &moved.events() : nullptr;
  const bool alone = channel == nullptr;
  if (alone) channel = rdma_create_event_channel();
  if (channel == nullptr) return -1;
  {
    const std::lock_guard lock(process().mutex);
    for (Event* const event : moved.events().take(moved))
      static_cast<Channel*>(channel)->put(event);
    moved.channel = channel;
    moved.synchronous = alone;
  }
  if (own != nullptr) rdma_destroy_event_channel(own);
  return 0;
}

}  // extern "C"
}  // namespace pacecar::ibverbs::cm
