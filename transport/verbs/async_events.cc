#include "transport/verbs/async_events.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "transport/verbs/errors.h"

namespace pacecar {

AsyncEvents::AsyncEvents(ibv_context* context, std::string device, uint32_t port, LogSink log)
    : context_(context), device_(std::move(device)), port_(port), log_(log) {}

Result<void> AsyncEvents::set_up() {
  const int flags = fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return tl::unexpected(verbs_error(Call::kOther, "fcntl", errno, device_));
  }
  return {};
}

bool AsyncEvents::next(Event* event) {
  ibv_async_event raw{};
  while (ibv_get_async_event(context_, &raw) == 0) {
    *event = take(raw);
    ibv_ack_async_event(&raw);
    if (event->kind != Event::Kind::kNone) return true;
  }
  return false;
}

AsyncEvents::Event AsyncEvents::take(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      ++counts_.queue_pair_errors;
      return {Event::Kind::kQueuePairFailed, event.element.qp->qp_num, event.event_type};
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return {Event::Kind::kReceivedAll, event.element.qp->qp_num, event.event_type};
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      ++counts_.device_fatal;
      log(LogLevel::kError, event.event_type, "the device is of no use any more");
      return {Event::Kind::kDeviceFailed, 0, event.event_type};
    case IBV_EVENT_PORT_ERR:
      if (static_cast<uint32_t>(event.element.port_num) != port_) return {};
      ++counts_.port_errors;
      log(LogLevel::kWarn, event.event_type, "the link is down; transfers wait for it");
      return {};
    case IBV_EVENT_PORT_ACTIVE:
      if (static_cast<uint32_t>(event.element.port_num) != port_) return {};
      ++counts_.port_active;
      log(LogLevel::kInfo, event.event_type, "the link is up");
      return {};
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      ++counts_.address_changes;
      log(LogLevel::kInfo, event.event_type, "connections made before may not reach us any more");
      return {};
    default:
      ++counts_.others;
      return {};
  }
}

void AsyncEvents::log(LogLevel level, ibv_event_type type, const char* meaning) const {
  log_(level, fmt::format("{} port {}: {}: {}", device_, port_, ibv_event_type_str(type), meaning));
}

}  // namespace pacecar
