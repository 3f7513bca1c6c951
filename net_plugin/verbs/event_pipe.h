// Event pipes that programs read: completion channels, and a context's asynchronous events. An
// object takes its unread events with it when it ends, and ends when those that the program has
// read are acknowledged.
//
// Thread rule: any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace pacecar::ibverbs {

// Fixed-size records through a pipe, so that a program's own O_NONBLOCK counts, and poll() works.
class EventPipe {
 public:
  EventPipe();
  ~EventPipe();
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  int fd() const { return read_fd_; }
  // False: full, which a program that reads never sees.
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
  int read_fd_ = -1;
  int write_fd_ = -1;
};

// The program waits for it by other means than by reading it.
bool does_not_block(int fd);

// Queues an event for ibv_get_async_event, and counts it in `reported`.
void raise_event(ibv_context* context, const ibv_async_event& event, uint32_t& reported);
// Of an object that ends: takes its unread events from `reported`.
void drop_events(ibv_context* context, const void* object, uint32_t& reported);

// Waits until as many of the object's events are acknowledged as were reported.
template <typename Object>
void await_acknowledgements(Object& object, const uint32_t& acknowledged, uint32_t reported) {
  pthread_mutex_lock(&object.mutex);
  while (acknowledged < reported) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace pacecar::ibverbs
