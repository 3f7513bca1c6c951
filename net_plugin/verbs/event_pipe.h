// Event pipes that programs read: completion channels, and a context's asynchronous events. When an
// object is destroyed, its unread events are dropped, and the call waits until the program has
// acknowledged the events that it has read. Thread rule: any thread.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>

#include "transport/base/file_descriptor.h"

namespace pacecar::ibverbs {

// O_NONBLOCK is set.
inline bool does_not_block(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

// Whether a read(2) would go on after the signal that has ended a poll(2): all handlers of the
// program have SA_RESTART, except the handlers of faults.
bool restarts_after_signal();

// Its descriptor is an eventfd that counts the unread records: a program may poll() it, and set
// O_NONBLOCK. As in the kernel no event is lost, however many a program leaves unread.
template <typename Record>
class EventPipe {
 public:
  EventPipe() {
    if (!count_) throw std::system_error(errno, std::generic_category(), "no event channel");
  }

  int fd() const { return count_.get(); }
  void put(const Record& record) {
    const std::lock_guard lock(mutex_);
    unread_.push_back(record);
    eventfd_write(fd(), 1);
  }
  // As read(2): false with errno. A thread does not hold the lock while it waits; of several
  // threads only one gets the record.
  bool take(Record* record) {
    for (;;) {
      const bool waits = !does_not_block(fd());
      pollfd readable{fd(), POLLIN, 0};
      if (waits && poll(&readable, 1, -1) < 0 && !restarts_after_signal()) return false;
      const std::lock_guard lock(mutex_);
      if (!unread_.empty()) {
        *record = unread_.front();
        unread_.pop_front();
        count_down(1);
        return true;
      }
      if (waits) continue;
      errno = EAGAIN;
      return false;
    }
  }
  // Removes the unread records for which `ended` holds. Returns how many.
  template <typename Ended>
  uint32_t remove_if(const Ended& ended) {
    const std::lock_guard lock(mutex_);
    const auto removed = static_cast<uint32_t>(std::erase_if(unread_, ended));
    count_down(removed);
    return removed;
  }

 private:
  void count_down(uint32_t records) const {
    eventfd_t one = 0;
    for (; records > 0; --records) eventfd_read(fd(), &one);
  }

  std::mutex mutex_;
  std::deque<Record> unread_;
  const FileDescriptor count_{eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)};
};

// Queues an event for ibv_get_async_event, and counts it in `reported`.
void raise_event(ibv_context* context, const ibv_async_event& event, uint32_t& reported);
// Drops the unread events of an object that is being destroyed, and subtracts them from `reported`.
void drop_events(ibv_context* context, const void* object, uint32_t& reported);

// Waits until the program has acknowledged as many events of the object as were reported.
template <typename Object>
void await_acknowledgements(Object& object, const uint32_t& acknowledged, uint32_t reported) {
  pthread_mutex_lock(&object.mutex);
  while (acknowledged < reported) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
}

template <typename Object>
void begin_events(Object& object) {
  pthread_mutex_init(&object.mutex, nullptr);
  pthread_cond_init(&object.cond, nullptr);
}
// Before the object is deleted. Drops the asynchronous events that the program has not read, and
// waits until it has acknowledged the others.
template <typename Object>
void end_events(Object& object, const uint32_t& acknowledged, uint32_t& reported) {
  drop_events(object.context, &object, reported);
  await_acknowledgements(object, acknowledged, reported);
  pthread_cond_destroy(&object.cond);
  pthread_mutex_destroy(&object.mutex);
}

}  // namespace pacecar::ibverbs
