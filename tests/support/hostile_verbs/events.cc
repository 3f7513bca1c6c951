#include "tests/support/hostile_verbs/events.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace pacecar::hostile {
namespace {

constexpr std::chrono::seconds kAcknowledgeLimit{20};

}  // namespace

void count_event(int fd) { eventfd_write(fd, 1); }

SubjectKind subject_kind(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return SubjectKind::kCompletions;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return SubjectKind::kReceives;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return SubjectKind::kQueuePair;
    default: return SubjectKind::kDevice;
  }
}

EventSubject subject_of(const ibv_async_event& event) {
  const auto of = [](const auto* object) { return EventSubject{object, object->context}; };
  switch (subject_kind(event.event_type)) {
    case SubjectKind::kCompletions: return of(event.element.cq);
    case SubjectKind::kReceives: return of(event.element.srq);
    case SubjectKind::kQueuePair: return of(event.element.qp);
    case SubjectKind::kDevice: break;
  }
  return {};
}

AsyncEvents::AsyncEvents() { queue_.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE); }
AsyncEvents::~AsyncEvents() { close(queue_.fd); }

void AsyncEvents::push(const ibv_async_event& event) {
  queue_.events.push_back(event);
  count_event(queue_.fd);
}

std::optional<ibv_async_event> AsyncEvents::take() {
  if (queue_.events.empty()) return std::nullopt;
  const ibv_async_event event = queue_.events.front();
  queue_.events.pop_front();
  if (const void* const object = subject_of(event).object) count_taken(object);
  return event;
}

void AsyncEvents::acknowledge(const void* object, unsigned count) {
  taken_[object] -= count;
  acknowledged_.notify_all();
}

void AsyncEvents::forget(const void* object, std::unique_lock<std::mutex>& lock) {
  if (!acknowledged_.wait_for(lock, kAcknowledgeLimit, [&] { return taken_[object] == 0; })) {
    std::fputs("hostile device: destroyed before its events were acknowledged\n", stderr);
    std::abort();
  }
  taken_.erase(object);
  std::erase_if(queue_.events,
                [&](const ibv_async_event& event) { return subject_of(event).object == object; });
}

}  // namespace pacecar::hostile
