#include "tests/support/hostile_verbs/events.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace pacecar::hostile {
namespace {

constexpr std::chrono::seconds kForEver{20};

}  // namespace

int event_counter() { return eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE); }
void count_event(int fd) { eventfd_write(fd, 1); }

EventSubject subject_kind(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return EventSubject::kCompletions;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventSubject::kReceives;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventSubject::kQueuePair;
    default:
      return EventSubject::kDevice;
  }
}

const void* subject_of(const ibv_async_event& event) {
  switch (subject_kind(event.event_type)) {
    case EventSubject::kCompletions:
      return event.element.cq;
    case EventSubject::kReceives:
      return event.element.srq;
    case EventSubject::kQueuePair:
      return event.element.qp;
    case EventSubject::kDevice:
      break;
  }
  return nullptr;
}

ibv_context* context_of(const ibv_async_event& event) {
  switch (subject_kind(event.event_type)) {
    case EventSubject::kCompletions:
      return event.element.cq->context;
    case EventSubject::kReceives:
      return event.element.srq->context;
    case EventSubject::kQueuePair:
      return event.element.qp->context;
    case EventSubject::kDevice:
      break;
  }
  return nullptr;
}

AsyncEvents::AsyncEvents() { queue_.fd = event_counter(); }
AsyncEvents::~AsyncEvents() { close(queue_.fd); }

void AsyncEvents::push(const ibv_async_event& event) {
  queue_.events.push_back(event);
  count_event(queue_.fd);
}

std::optional<ibv_async_event> AsyncEvents::take() {
  if (queue_.events.empty()) return std::nullopt;
  const ibv_async_event event = queue_.events.front();
  queue_.events.pop_front();
  if (const void* const subject = subject_of(event)) owe(subject);
  return event;
}

void AsyncEvents::acknowledge(const void* subject, unsigned count) {
  owed_[subject] -= count;
  acknowledged_.notify_all();
}

void AsyncEvents::forget(const void* subject, std::unique_lock<std::mutex>& lock) {
  if (!acknowledged_.wait_for(lock, kForEver, [&] { return owed_[subject] == 0; })) {
    std::fputs("hostile device: destroyed before its events were acknowledged\n", stderr);
    std::abort();
  }
  owed_.erase(subject);
  std::erase_if(queue_.events,
                [&](const ibv_async_event& event) { return subject_of(event) == subject; });
}

}  // namespace pacecar::hostile
