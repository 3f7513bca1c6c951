#include "net_plugin/verbs/event_pipe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/objects.h"

namespace pacecar::ibverbs {
namespace {

template <typename Object>
void acknowledge(Object& object, uint32_t& acknowledged, uint32_t count) {
  pthread_mutex_lock(&object.mutex);
  acknowledged += count;
  pthread_cond_signal(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

// False: not ours. Our devices raise only these types.
bool acknowledged_ours(const ibv_async_event& event) {
  const auto acknowledged = [](auto* object, uint32_t& count) {
    const bool own = ours(object);
    if (own) acknowledge(*object, count, 1);
    return own;
  };
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return acknowledged(event.element.cq, event.element.cq->async_events_completed);
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return acknowledged(event.element.qp, event.element.qp->events_completed);
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return acknowledged(event.element.srq, event.element.srq->events_completed);
    default: return false;
  }
}

}  // namespace

bool restarts_after_signal() {
  constexpr std::array kOfFaults = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action {};
    const bool known = sigaction(signal, nullptr, &action) == 0;
    const bool caught = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (!known || !caught || std::ranges::count(kOfFaults, signal) > 0) continue;
    if ((action.sa_flags & SA_RESTART) != 0) continue;
    errno = EINTR;
    return false;
  }
  return true;
}

void raise_event(ibv_context* context, const ibv_async_event& event, uint32_t& reported) {
  context_of(context).async.put(event);
  ++reported;
}

void drop_events(ibv_context* context, const void* object, uint32_t& reported) {
  reported -= context_of(context).async.remove_if(
      [&](const ibv_async_event& event) { return event.element.qp == object; });
}

extern "C" {

PACECAR_VERBS int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  FORWARD_UNLESS_OURS(ibv_get_async_event, context, event);
  return context_of(context).async.take(event) ? 0 : -1;
}

PACECAR_VERBS void ibv_ack_async_event(ibv_async_event* event) {
  if (acknowledged_ours(*event) || !have_real()) return;
  CALL_REAL(ibv_ack_async_event)(event);
}

PACECAR_VERBS ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  FORWARD_UNLESS_OURS(ibv_create_comp_channel, context);
  return made([&]() -> ibv_comp_channel* {
    auto* const channel = new CompletionChannel;
    channel->context = context;
    channel->fd = channel->pipe.fd();
    channel->refcnt = 0;
    return channel;
  });
}

PACECAR_VERBS int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  FORWARD_UNLESS_OURS(ibv_destroy_comp_channel, channel);
  if (users_of(*channel) > 0) return EBUSY;
  delete static_cast<CompletionChannel*>(channel);
  return 0;
}

PACECAR_VERBS int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  FORWARD_UNLESS_OURS(ibv_get_cq_event, channel, cq, cq_context);
  CompletionQueue* queue = nullptr;
  if (!does_not_block(channel->fd) && !nic_of(channel->context).turn_until_readable(channel->fd)) {
    return failed(EINTR);
  }
  if (!static_cast<CompletionChannel*>(channel)->pipe.take(&queue)) return -1;
  *cq = queue->base();
  *cq_context = queue->cq_context;
  return 0;
}

PACECAR_VERBS void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  FORWARD_UNLESS_OURS(ibv_ack_cq_events, cq, count);
  acknowledge(*cq, cq->comp_events_completed, count);
}

}  // extern "C"
}  // namespace pacecar::ibverbs
