// Event pipes that programs read: completion channels, and a context's asynchronous events.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/objects.h"

namespace pacecar::ibverbs {

EventPipe::EventPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::bad_alloc();
  read_fd_ = ends[0];
  write_fd_ = ends[1];
  fcntl(write_fd_, F_SETFL, O_NONBLOCK);
}

EventPipe::~EventPipe() {
  close(read_fd_);
  close(write_fd_);
}

bool EventPipe::put(const void* record, size_t size) const {
  return write(write_fd_, record, size) == static_cast<ssize_t>(size);
}

bool EventPipe::take(void* record, size_t size) const {
  return read(read_fd_, record, size) == static_cast<ssize_t>(size);
}

bool does_not_block(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

// Drops a queue's unread events, and keeps those of other queues.
void CompletionChannel::drop_unread(CompletionQueue* ended) {
  std::vector<CompletionQueue*> others;
  pollfd waiting{pipe.fd(), POLLIN, 0};
  while (poll(&waiting, 1, 0) == 1) {
    CompletionQueue* queue = nullptr;
    if (!pipe.take(&queue, sizeof queue)) break;
    if (queue == ended) {
      --ended->events_reported;
    } else {
      others.push_back(queue);
    }
  }
  for (CompletionQueue* const queue : others) pipe.put(&queue, sizeof queue);
}

void raise_event(ibv_context* context, const ibv_async_event& event) {
  (void)context_of(context).async.put(&event, sizeof event);
}

}  // namespace pacecar::ibverbs

using namespace pacecar;  // NOLINT: the C interface lies in no namespace
using namespace pacecar::ibverbs;

extern "C" {

PACECAR_VERBS int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (!ours(context)) return CALL_REAL(ibv_get_async_event, "IBVERBS_1.1")(context, event);
  return context_of(context).async.take(event, sizeof *event) ? 0 : -1;
}

PACECAR_VERBS void ibv_ack_async_event(ibv_async_event* event) {
  const ibv_context* context = nullptr;  // a port's: nothing is counted
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      context = event->element.cq->context;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      context = event->element.qp->context;
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      context = event->element.srq->context;
      break;
    default:
      break;
  }
  if (context != nullptr && ours(context)) return;
  if (have_real()) CALL_REAL(ibv_ack_async_event, "IBVERBS_1.1")(event);
}

PACECAR_VERBS ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (!ours(context)) return CALL_REAL(ibv_create_comp_channel, "IBVERBS_1.0")(context);
  return made([&]() -> ibv_comp_channel* {
    auto* const channel = new CompletionChannel;
    channel->context = context;
    channel->fd = channel->pipe.fd();
    channel->refcnt = 0;
    return channel;
  });
}

PACECAR_VERBS int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (!is_ours(channel)) return CALL_REAL(ibv_destroy_comp_channel, "IBVERBS_1.0")(channel);
  if (channel->refcnt > 0) return EBUSY;
  delete static_cast<CompletionChannel*>(channel);
  return 0;
}

PACECAR_VERBS int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (!is_ours(channel)) {
    return CALL_REAL(ibv_get_cq_event, "IBVERBS_1.1")(channel, cq, cq_context);
  }
  CompletionQueue* queue = nullptr;
  if (!does_not_block(channel->fd)) nic_of(channel->context).turn_until_readable(channel->fd);
  if (!static_cast<CompletionChannel*>(channel)->pipe.take(&queue, sizeof queue)) return -1;
  *cq = queue->base();
  *cq_context = queue->cq_context;
  return 0;
}

PACECAR_VERBS void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  if (!is_ours(cq)) return CALL_REAL(ibv_ack_cq_events, "IBVERBS_1.1")(cq, count);
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // extern "C"
