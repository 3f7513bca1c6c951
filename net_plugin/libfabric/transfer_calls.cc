// fi_send, fi_recv, fi_tsend, fi_trecv, fi_write, fi_read and their variants. Their arguments
// differ only in what follows the peer's address: nothing, a tag, or a remote address and its key.
#include "net_plugin/libfabric/calls.h"

namespace pacecar::fabric {
namespace {

// The tag that a receive matches; nullopt: it is untagged.
using Tag = std::optional<Pattern>;
Tag tag_of() { return {}; }
Tag tag_of(uint64_t tag, uint64_t ignore) { return Pattern{.tag = tag, .ignore = ignore}; }
Tag tag_of_message(const fi_msg& /*message*/) { return {}; }
Tag tag_of_message(const fi_msg_tagged& message) { return tag_of(message.tag, message.ignore); }

void place(OperationRequest& /*request*/) {}
void place(OperationRequest& request, uint64_t tag) {
  request.tagged = true;
  request.tag = tag;
}
void place(OperationRequest& request, uint64_t address, uint64_t key) {
  request.address = address;
  request.tag = key;
}
void place_as(const fi_msg& /*message*/, OperationRequest& /*request*/) {}
void place_as(const fi_msg_tagged& message, OperationRequest& request) {
  place(request, message.tag);
}
// A call without a remote segment moves no bytes; its address and key are 0.
void place_as(const fi_msg_rma& message, OperationRequest& request) {
  if (message.rma_iov_count > 0) place(request, message.rma_iov[0].addr, message.rma_iov[0].key);
}

template <typename Message>
bool fits(const Message& message) {
  if constexpr (requires { message.rma_iov_count; }) {
    if (message.rma_iov_count > 1) return false;
  }
  return message.iov_count <= kMaxIov;
}

ssize_t post(fid_ep* endpoint, const Local& local, fi_addr_t source, const Tag& tag, void* context,
             uint64_t flags) {
  return guarded([&]() -> ssize_t {
    Endpoint& at = endpoint_of(endpoint);
    at.domain().note_call();
    const std::lock_guard lock(at.domain().mutex);
    if (!at.enabled()) return -FI_EOPBADSTATE;
    Pattern pattern = tag.value_or(Pattern());
    if (source != FI_ADDR_UNSPEC && at.directed()) {
      const auto peer = at.peer_number(source);
      if (!peer) return -FI_EINVAL;
      pattern.source = *peer;
    }
    Receive receive{.context = context, .flags = flags, .local = local, .shared = nullptr};
    if (tag) {
      if ((flags & FI_PEEK) != 0) return at.peek(pattern, receive);
      if ((flags & (FI_CLAIM | FI_DISCARD)) != 0) return at.post_claimed(receive);
    } else if ((flags & FI_MULTI_RECV) != 0) {
      if (local.count != 1) return -FI_EINVAL;
      receive.shared = std::make_shared<SharedBuffer>();
    }
    return at.post(tag.has_value(), pattern, receive);
  });
}

// `Message`: the structure of the call with all arguments. `TagArguments` follow the peer.
template <typename Message, typename... TagArguments>
struct Receives {
  static ssize_t one(fid_ep* endpoint, void* buffer, size_t length, void* desc, fi_addr_t source,
                     TagArguments... tag, void* context) {
    return post(endpoint, local_of(buffer, length, desc), source, tag_of(tag...), context,
                endpoint_of(endpoint).rx_flags());
  }

  static ssize_t pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count,
                        fi_addr_t source, TagArguments... tag, void* context) {
    if (count > kMaxIov) return -FI_EINVAL;
    return post(endpoint, local_of(iov, desc, count), source, tag_of(tag...), context,
                endpoint_of(endpoint).rx_flags());
  }

  static ssize_t by_message(fid_ep* endpoint, const Message* message, uint64_t flags) {
    if (!fits(*message)) return -FI_EINVAL;
    return post(endpoint, local_of(message->msg_iov, message->desc, message->iov_count),
                message->addr, tag_of_message(*message), message->context, flags);
  }
};

// Likewise for sends, writes and reads: `Place` follows the peer.
template <FrameKind kKind, typename Message, typename... Place>
struct Starts {
  static ssize_t one(fid_ep* endpoint, const void* buffer, size_t length, void* desc,
                     fi_addr_t peer, Place... where, void* context) {
    return run(endpoint, local_of(buffer, length, desc), {}, peer, where..., context);
  }

  static ssize_t pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count,
                        fi_addr_t peer, Place... where, void* context) {
    if (count > kMaxIov) return -FI_EINVAL;
    return run(endpoint, local_of(iov, desc, count), {}, peer, where..., context);
  }

  static ssize_t by_message(fid_ep* endpoint, const Message* message, uint64_t flags) {
    if (!fits(*message)) return -FI_EINVAL;
    OperationRequest request{.kind = kKind,
                             .has_data = (flags & FI_REMOTE_CQ_DATA) != 0,
                             .local = local_of(message->msg_iov, message->desc, message->iov_count),
                             .to = message->addr,
                             .data = message->data,
                             .context = message->context,
                             .flags = flags};
    place_as(*message, request);
    return start(endpoint, request);
  }

  static ssize_t inject(fid_ep* endpoint, const void* buffer, size_t length, fi_addr_t to,
                        Place... where) {
    return run_injected(endpoint, local_of(buffer, length, nullptr), {}, to, where...);
  }

  static ssize_t with_data(fid_ep* endpoint, const void* buffer, size_t length, void* desc,
                           uint64_t data, fi_addr_t to, Place... where, void* context) {
    return run(endpoint, local_of(buffer, length, desc), data, to, where..., context);
  }

  static ssize_t inject_data(fid_ep* endpoint, const void* buffer, size_t length, uint64_t data,
                             fi_addr_t to, Place... where) {
    return run_injected(endpoint, local_of(buffer, length, nullptr), data, to, where...);
  }

 private:
  static ssize_t run(fid_ep* endpoint, const Local& local, std::optional<uint64_t> data,
                     fi_addr_t peer, Place... where, void* context) {
    OperationRequest request{.kind = kKind,
                             .has_data = data.has_value(),
                             .local = local,
                             .to = peer,
                             .data = data.value_or(0),
                             .context = context,
                             .flags = endpoint_of(endpoint).tx_flags()};
    place(request, where...);
    return start(endpoint, request);
  }

  static ssize_t run_injected(fid_ep* endpoint, const Local& local, std::optional<uint64_t> data,
                              fi_addr_t to, Place... where) {
    OperationRequest request{.kind = kKind,
                             .inject = true,
                             .has_data = data.has_value(),
                             .local = local,
                             .to = to,
                             .data = data.value_or(0)};
    place(request, where...);
    return start(endpoint, request);
  }
};

using Writes = Starts<FrameKind::kWrite, fi_msg_rma, uint64_t, uint64_t>;
using Reads = Starts<FrameKind::kRead, fi_msg_rma, uint64_t, uint64_t>;

ssize_t read_one(fid_ep* endpoint, void* buffer, size_t length, void* desc, fi_addr_t from,
                 uint64_t address, uint64_t key, void* context) {
  return Reads::one(endpoint, buffer, length, desc, from, address, key, context);
}

template <typename Table, typename Receiving, typename Sending>
constexpr Table messages() {
  return {.size = sizeof(Table),
          .recv = Receiving::one,
          .recvv = Receiving::pieces,
          .recvmsg = Receiving::by_message,
          .send = Sending::one,
          .sendv = Sending::pieces,
          .sendmsg = Sending::by_message,
          .inject = Sending::inject,
          .senddata = Sending::with_data,
          .injectdata = Sending::inject_data};
}

}  // namespace

fi_ops_msg message_calls =
    messages<fi_ops_msg, Receives<fi_msg>, Starts<FrameKind::kMessage, fi_msg>>();
fi_ops_tagged tagged_calls = messages<fi_ops_tagged, Receives<fi_msg_tagged, uint64_t, uint64_t>,
                                      Starts<FrameKind::kMessage, fi_msg_tagged, uint64_t>>();
fi_ops_rma rma_calls = {.size = sizeof(fi_ops_rma),
                        .read = read_one,
                        .readv = Reads::pieces,
                        .readmsg = Reads::by_message,
                        .write = Writes::one,
                        .writev = Writes::pieces,
                        .writemsg = Writes::by_message,
                        .inject = Writes::inject,
                        .writedata = Writes::with_data,
                        .injectdata = Writes::inject_data};

}  // namespace pacecar::fabric
