// fi_tsend, fi_trecv and their variants.
#include "net_plugin/libfabric/calls.h"

namespace pacecar::fabric {
namespace {

ssize_t post(fid_ep* endpoint, const Local& local, fi_addr_t source, uint64_t tag, uint64_t ignore,
             void* context, uint64_t flags) {
  return guarded([&]() -> ssize_t {
    Endpoint& at = endpoint_of(endpoint);
    at.domain().note_call();
    const std::lock_guard lock(at.domain().mutex);
    if (!at.enabled()) return -FI_EOPBADSTATE;
    Pattern pattern{.tag = tag, .ignore = ignore};
    if (source != FI_ADDR_UNSPEC && at.directed()) {
      const auto peer = at.peer_number(source);
      if (!peer) return -FI_EINVAL;
      pattern.source = *peer;
    }
    const Receive receive{.context = context, .flags = flags, .local = local, .shared = nullptr};
    if ((flags & FI_PEEK) != 0) return at.peek(pattern, receive);
    if ((flags & (FI_CLAIM | FI_DISCARD)) != 0) return at.post_claimed(receive);
    return at.post(true, pattern, receive);
  });
}

ssize_t receive(fid_ep* endpoint, void* buffer, size_t length, void* desc, fi_addr_t source,
                uint64_t tag, uint64_t ignore, void* context) {
  return post(endpoint, local_of(buffer, length, desc), source, tag, ignore, context,
              endpoint_of(endpoint).rx_flags());
}

ssize_t receive_pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count,
                       fi_addr_t source, uint64_t tag, uint64_t ignore, void* context) {
  if (count > kMaxIov) return -FI_EINVAL;
  return post(endpoint, local_of(iov, desc, count), source, tag, ignore, context,
              endpoint_of(endpoint).rx_flags());
}

ssize_t receive_message(fid_ep* endpoint, const fi_msg_tagged* message, uint64_t flags) {
  if (message->iov_count > kMaxIov) return -FI_EINVAL;
  return post(endpoint, local_of(message->msg_iov, message->desc, message->iov_count),
              message->addr, message->tag, message->ignore, message->context, flags);
}

ssize_t send_pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count, fi_addr_t to,
                    uint64_t tag, void* context) {
  if (count > kMaxIov) return -FI_EINVAL;
  return start(endpoint, {.tagged = true,
                          .local = local_of(iov, desc, count),
                          .to = to,
                          .tag = tag,
                          .context = context,
                          .flags = endpoint_of(endpoint).tx_flags()});
}

ssize_t send_one(fid_ep* endpoint, const void* buffer, size_t length, void* desc, fi_addr_t to,
                 uint64_t tag, void* context) {
  return start(endpoint, {.tagged = true,
                          .local = local_of(buffer, length, desc),
                          .to = to,
                          .tag = tag,
                          .context = context,
                          .flags = endpoint_of(endpoint).tx_flags()});
}

ssize_t send_message(fid_ep* endpoint, const fi_msg_tagged* message, uint64_t flags) {
  if (message->iov_count > kMaxIov) return -FI_EINVAL;
  return start(endpoint, {.tagged = true,
                          .has_data = (flags & FI_REMOTE_CQ_DATA) != 0,
                          .local = local_of(message->msg_iov, message->desc, message->iov_count),
                          .to = message->addr,
                          .tag = message->tag,
                          .data = message->data,
                          .context = message->context,
                          .flags = flags});
}

ssize_t inject(fid_ep* endpoint, const void* buffer, size_t length, fi_addr_t to, uint64_t tag) {
  return start(endpoint, {.tagged = true,
                          .inject = true,
                          .local = local_of(buffer, length, nullptr),
                          .to = to,
                          .tag = tag});
}

ssize_t send_data(fid_ep* endpoint, const void* buffer, size_t length, void* desc, uint64_t data,
                  fi_addr_t to, uint64_t tag, void* context) {
  return start(endpoint, {.tagged = true,
                          .has_data = true,
                          .local = local_of(buffer, length, desc),
                          .to = to,
                          .tag = tag,
                          .data = data,
                          .context = context,
                          .flags = endpoint_of(endpoint).tx_flags()});
}

ssize_t inject_data(fid_ep* endpoint, const void* buffer, size_t length, uint64_t data,
                    fi_addr_t to, uint64_t tag) {
  return start(endpoint, {.tagged = true,
                          .inject = true,
                          .has_data = true,
                          .local = local_of(buffer, length, nullptr),
                          .to = to,
                          .tag = tag,
                          .data = data});
}

fi_ops_tagged kTaggedCalls = {.size = sizeof(fi_ops_tagged),
                              .recv = receive,
                              .recvv = receive_pieces,
                              .recvmsg = receive_message,
                              .send = send_one,
                              .sendv = send_pieces,
                              .sendmsg = send_message,
                              .inject = inject,
                              .senddata = send_data,
                              .injectdata = inject_data};

}  // namespace

fi_ops_tagged* tagged_calls() { return &kTaggedCalls; }

}  // namespace pacecar::fabric
