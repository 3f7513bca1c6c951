// Event pipes that programs read: completion channels, and a context's asynchronous events. When an
// object is destroyed, its unread events are dropped, and the call waits until the program has
// acknowledged those that it has read. Thread rule: any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/base/file_descriptor.h"

namespace pacecar::ibverbs {

// A pipe of fixed-size records: a program may poll() it, and set O_NONBLOCK.
class EventPipe {
 public:
  EventPipe();

  int fd() const { return read_.get(); }
  // False: the pipe is full, as the program does not read.
  bool put(const void* record, size_t size);
  // As read(2): false with errno.
  bool take(void* record, size_t size);
  // Removes the unread records for which `ended` holds. Returns how many.
  template <typename Record, typename Ended>
  uint32_t remove_if(const Ended& ended) {
    const std::lock_guard lock(mutex_);
    std::vector<Record> others;
    uint32_t removed = 0;
    for (Record record{}; take_now(&record, sizeof record);) {
      if (ended(record)) {
        ++removed;
      } else {
        others.push_back(record);
      }
    }
    for (const Record& other : others) put_now(&other, sizeof other);
    return removed;
  }

 private:
  bool put_now(const void* record, size_t size) const;
  bool take_now(void* record, size_t size) const;

  std::mutex mutex_;
  FileDescriptor read_;
  FileDescriptor write_;
};

// O_NONBLOCK is set.
bool does_not_block(int fd);

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
// waits for those that it has.
template <typename Object>
void end_events(Object& object, const uint32_t& acknowledged, uint32_t& reported) {
  drop_events(object.context, &object, reported);
  await_acknowledgements(object, acknowledged, reported);
  pthread_cond_destroy(&object.cond);
  pthread_mutex_destroy(&object.mutex);
}

}  // namespace pacecar::ibverbs
