// What a hostile device tells beside completions: its events, each of which a program has to
// acknowledge. What an event is about can be destroyed when all that were taken are acknowledged;
// those that were not taken go with it.
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

// What tells a program of events: a counter that can be waited for, and the events.
template <typename Event>
struct EventQueue {
  int fd = -1;
  std::deque<Event> events;
};

// A counter for one of those.
int event_counter();
void count_event(int fd);

// What an event is about.
enum class EventSubject { kDevice, kCompletions, kReceives, kQueuePair };
EventSubject subject_kind(ibv_event_type type);
// The queue pair, completion queue or shared receive queue of an event, and its context; null: the
// port, or all.
const void* subject_of(const ibv_async_event& event);
ibv_context* context_of(const ibv_async_event& event);

class AsyncEvents {
 public:
  AsyncEvents();
  ~AsyncEvents();
  AsyncEvents(const AsyncEvents&) = delete;
  AsyncEvents& operator=(const AsyncEvents&) = delete;

  int fd() const { return queue_.fd; }
  void push(const ibv_async_event& event);
  std::optional<ibv_async_event> take();

  // Events of `subject`, of any kind, that a program has taken and owes an acknowledgement.
  void owe(const void* subject) { ++owed_[subject]; }
  void acknowledge(const void* subject, unsigned count);
  // Before it is destroyed: waits as libibverbs does, which is for ever where nobody acknowledges;
  // a test is ended after a while.
  void forget(const void* subject, std::unique_lock<std::mutex>& lock);

 private:
  EventQueue<ibv_async_event> queue_;
  std::unordered_map<const void*, unsigned> owed_;
  std::condition_variable acknowledged_;
};

}  // namespace pacecar::hostile
