// Event queues.
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
  const std::lock_guard lock(of(queue).mutex);
  return take(of(queue), event, buffer, length, flags);
}

ssize_t wait_for_event(fid_eq* queue, uint32_t* event, void* buffer, size_t length, int timeout,
                       uint64_t flags) {
  EventQueue& from = of(queue);
  std::unique_lock lock(from.mutex);
  const auto arrived = [&] { return !from.events.empty(); };
  if (timeout < 0) {
    from.arrived.wait(lock, arrived);
  } else {
    from.arrived.wait_for(lock, std::chrono::milliseconds(timeout), arrived);
  }
  return take(from, event, buffer, length, flags);
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
  const auto* const bytes = static_cast<const uint8_t*>(buffer);
  of(queue).push({event, {bytes, bytes + length}});
  return static_cast<ssize_t>(length);
}

const char* describe_error(fid_eq* /*queue*/, int error, const void* /*data*/, char* buffer,
                           size_t length) {
  return copied_text(fi_strerror(error), buffer, length);
}

fi_ops kQueueObject = object_calls(close_object<EventQueue>, control_signal<EventQueue>);
fi_ops_eq kQueue = {.size = sizeof(fi_ops_eq),
                    .read = safe<read_event>,
                    .readerr = read_error,
                    .write = safe<write_event>,
                    .sread = safe<wait_for_event>,
                    .strerror = describe_error};

}  // namespace

void EventQueue::push(Event event) {
  const std::lock_guard lock(mutex);
  events.push_back(std::move(event));
  arrived.notify_all();
  signal.raise();
}

int open_event_queue(fid_fabric* /*fabric*/, fi_eq_attr* attr, fid_eq** queue, void* context) {
  if (!Signal::known(attr->wait_obj)) return -FI_ENOSYS;
  auto* const made = new EventQueue(attr->wait_obj);
  return hand_out(made, FI_CLASS_EQ, &kQueueObject, &kQueue, context, queue);
}

}  // namespace pacecar::fabric
