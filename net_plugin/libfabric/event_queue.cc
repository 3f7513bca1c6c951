// Event queues, wait objects, and fi_trywait.
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>

#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

EventQueue& of(fid_eq* queue) { return *static_cast<EventQueue*>(queue); }

// With its lock held.
ssize_t take(EventQueue& queue, uint32_t* event, void* buffer, size_t length, uint64_t flags) {
  if (queue.events.empty()) return -FI_EAGAIN;
  const EventQueue::Event& first = queue.events.front();
  if (first.error != 0) return -FI_EAVAIL;
  if (length < first.bytes.size()) return -FI_ETOOSMALL;
  *event = first.kind;
  std::memcpy(buffer, first.bytes.data(), first.bytes.size());
  const auto bytes = static_cast<ssize_t>(first.bytes.size());
  if ((flags & FI_PEEK) == 0) queue.events.pop_front();
  return bytes;
}

ssize_t read_event(fid_eq* queue, uint32_t* event, void* buffer, size_t length, uint64_t flags) {
  return guarded([&] {
    const std::lock_guard lock(of(queue).mutex);
    return take(of(queue), event, buffer, length, flags);
  });
}

ssize_t wait_for_event(fid_eq* queue, uint32_t* event, void* buffer, size_t length, int timeout,
                       uint64_t flags) {
  return guarded([&] {
    EventQueue& from = of(queue);
    std::unique_lock lock(from.mutex);
    const auto arrived = [&] { return !from.events.empty(); };
    if (timeout < 0) {
      from.arrived.wait(lock, arrived);
    } else {
      from.arrived.wait_for(lock, std::chrono::milliseconds(timeout), arrived);
    }
    return take(from, event, buffer, length, flags);
  });
}

ssize_t read_error(fid_eq* queue, fi_eq_err_entry* buffer, uint64_t flags) {
  const std::lock_guard lock(of(queue).mutex);
  auto& events = of(queue).events;
  if (events.empty() || events.front().error == 0) return -FI_EAGAIN;
  std::memcpy(buffer, events.front().bytes.data(), sizeof *buffer);
  if ((flags & FI_PEEK) == 0) events.pop_front();
  return sizeof *buffer;
}

ssize_t write_event(fid_eq* queue, uint32_t event, const void* buffer, size_t length,
                    uint64_t /*flags*/) {
  return guarded([&] {
    const auto* const bytes = static_cast<const uint8_t*>(buffer);
    of(queue).push({event, {bytes, bytes + length}});
    return static_cast<ssize_t>(length);
  });
}

const char* describe_error(fid_eq* /*queue*/, int error, const void* /*data*/, char* buffer,
                           size_t length) {
  return copied_text(fi_strerror(error), buffer, length);
}

// 0: the application may block on the object's descriptor.
int may_wait(fid* object) {
  switch (object->fclass) {
    case FI_CLASS_CQ: {
      auto& queue = *reinterpret_cast<CompletionQueue*>(object);
      {
        const std::lock_guard lock(queue.domain.mutex);
        queue.domain.progress();
        if (!queue.unread.empty()) return -FI_EAGAIN;
        queue.signal.clear();
      }
      queue.domain.about_to_block();
      return 0;
    }
    case FI_CLASS_CNTR: {
      auto& counter = *reinterpret_cast<Counter*>(object);
      {
        const std::lock_guard lock(counter.domain.mutex);
        counter.signal.clear();
        counter.domain.progress();
      }
      counter.domain.about_to_block();
      return 0;
    }
    case FI_CLASS_EQ: {
      auto& queue = *reinterpret_cast<EventQueue*>(object);
      const std::lock_guard lock(queue.mutex);
      if (!queue.events.empty()) return -FI_EAGAIN;
      queue.signal.clear();
      return 0;
    }
    default:
      return -FI_EINVAL;
  }
}

fi_ops kQueueObject = object_calls(close_object<EventQueue>, control_signal<EventQueue>);
fi_ops_eq kQueue = {.size = sizeof(fi_ops_eq),
                    .read = read_event,
                    .readerr = read_error,
                    .write = write_event,
                    .sread = wait_for_event,
                    .strerror = describe_error};

}  // namespace

Signal::Signal(fi_wait_obj wanted)
    : kind_(wanted),
      descriptor_(wanted == FI_WAIT_FD ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1) {}

void Signal::raise() const {
  const uint64_t one = 1;
  if (has_descriptor()) (void)!write(descriptor_.get(), &one, sizeof one);
}

void Signal::clear() const {
  uint64_t count = 0;
  if (has_descriptor()) (void)!read(descriptor_.get(), &count, sizeof count);
}

int Signal::control(int command, void* argument) const {
  if (command == FI_GETWAITOBJ) {
    *static_cast<fi_wait_obj*>(argument) = kind_;
    return 0;
  }
  if (command != FI_GETWAIT || !has_descriptor()) return -FI_ENOSYS;
  *static_cast<int*>(argument) = descriptor_.get();
  return 0;
}

void EventQueue::push(Event event) {
  const std::lock_guard lock(mutex);
  events.push_back(std::move(event));
  arrived.notify_all();
  signal.raise();
}

int open_event_queue(fid_fabric* /*fabric*/, fi_eq_attr* attr, fid_eq** queue, void* context) {
  return guarded([&]() -> int {
    if (!Signal::known(attr->wait_obj)) return -FI_ENOSYS;
    auto* const made = new EventQueue(attr->wait_obj);
    return hand_out(made, FI_CLASS_EQ, &kQueueObject, &kQueue, context, queue);
  });
}

int try_wait(fid_fabric* /*fabric*/, fid** waited, int count) {
  return guarded([&] {
    for (int i = 0; i < count; ++i) {
      if (const int result = may_wait(waited[i]); result != 0) return result;
    }
    return 0;
  });
}

}  // namespace pacecar::fabric
