// The asynchronous events of a hostile device. A program has to acknowledge each event that it
// takes before it can destroy the event's subject; events that were not taken are dropped with it.
//
// Thread rule: under the device's lock.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace pacecar::hostile {

// Events of a program, and a counter (eventfd) to wait for them.
template <typename Event>
struct EventQueue {
  int fd = -1;
  std::deque<Event> events;
};

void count_event(int fd);

enum class SubjectKind { kDevice, kCompletions, kReceives, kQueuePair };
SubjectKind subject_kind(ibv_event_type type);
// The queue pair, completion queue or shared receive queue of an event, and its context; null: the
// device or its port.
struct EventSubject {
  const void* object = nullptr;
  ibv_context* context = nullptr;
};
EventSubject subject_of(const ibv_async_event& event);

class AsyncEvents {
 public:
  AsyncEvents();
  ~AsyncEvents();
  AsyncEvents(const AsyncEvents&) = delete;
  AsyncEvents& operator=(const AsyncEvents&) = delete;

  int fd() const { return queue_.fd; }
  void push(const ibv_async_event& event);
  std::optional<ibv_async_event> take();

  // The program has taken an event of this object, which it must acknowledge.
  void count_taken(const void* object) { ++taken_[object]; }
  void acknowledge(const void* object, unsigned count);
  // Before the object is destroyed: waits for acknowledgements of all taken events. libibverbs
  // waits for ever; here the test is aborted after a while.
  void forget(const void* object, std::unique_lock<std::mutex>& lock);

 private:
  EventQueue<ibv_async_event> queue_;
  std::unordered_map<const void*, unsigned> taken_;  // and not acknowledged
  std::condition_variable acknowledged_;
};

}  // namespace pacecar::hostile
