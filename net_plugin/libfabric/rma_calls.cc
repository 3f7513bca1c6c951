// fi_write, fi_read and their variants.
#include "net_plugin/libfabric/calls.h"

namespace pacecar::fabric {
namespace {

OperationRequest request_of(FrameKind kind, const Local& local, fi_addr_t to, uint64_t address,
                            uint64_t key, void* context, uint64_t flags) {
  return {.kind = kind,
          .local = local,
          .to = to,
          .tag = key,
          .address = address,
          .context = context,
          .flags = flags};
}

// A call without a remote segment moves no bytes; its address and key are 0.
OperationRequest request_of(FrameKind kind, const fi_msg_rma& message, uint64_t flags) {
  const bool remote = message.rma_iov_count > 0;
  OperationRequest request =
      request_of(kind, local_of(message.msg_iov, message.desc, message.iov_count), message.addr,
                 remote ? message.rma_iov[0].addr : 0, remote ? message.rma_iov[0].key : 0,
                 message.context, flags);
  request.has_data = (flags & FI_REMOTE_CQ_DATA) != 0;
  request.data = message.data;
  request.inject = false;
  return request;
}

template <FrameKind kKind>
ssize_t move_one(fid_ep* endpoint, const void* buffer, size_t length, void* desc, fi_addr_t peer,
                 uint64_t address, uint64_t key, void* context) {
  return start(endpoint, request_of(kKind, local_of(buffer, length, desc), peer, address, key,
                                    context, endpoint_of(endpoint).tx_flags()));
}

ssize_t read_one(fid_ep* endpoint, void* buffer, size_t length, void* desc, fi_addr_t from,
                 uint64_t address, uint64_t key, void* context) {
  return move_one<FrameKind::kRead>(endpoint, buffer, length, desc, from, address, key, context);
}

template <FrameKind kKind>
ssize_t move_pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count, fi_addr_t peer,
                    uint64_t address, uint64_t key, void* context) {
  if (count > kMaxIov) return -FI_EINVAL;
  return start(endpoint, request_of(kKind, local_of(iov, desc, count), peer, address, key, context,
                                    endpoint_of(endpoint).tx_flags()));
}

template <FrameKind kKind>
ssize_t move_message(fid_ep* endpoint, const fi_msg_rma* message, uint64_t flags) {
  if (message->iov_count > kMaxIov || message->rma_iov_count > 1) return -FI_EINVAL;
  return start(endpoint, request_of(kKind, *message, flags));
}

ssize_t inject(fid_ep* endpoint, const void* buffer, size_t length, fi_addr_t to, uint64_t address,
               uint64_t key) {
  OperationRequest request = request_of(FrameKind::kWrite, local_of(buffer, length, nullptr), to,
                                        address, key, nullptr, 0);
  request.inject = true;
  return start(endpoint, request);
}

ssize_t write_data(fid_ep* endpoint, const void* buffer, size_t length, void* desc, uint64_t data,
                   fi_addr_t to, uint64_t address, uint64_t key, void* context) {
  OperationRequest request = request_of(FrameKind::kWrite, local_of(buffer, length, desc), to,
                                        address, key, context, endpoint_of(endpoint).tx_flags());
  request.has_data = true;
  request.data = data;
  return start(endpoint, request);
}

ssize_t inject_data(fid_ep* endpoint, const void* buffer, size_t length, uint64_t data,
                    fi_addr_t to, uint64_t address, uint64_t key) {
  OperationRequest request = request_of(FrameKind::kWrite, local_of(buffer, length, nullptr), to,
                                        address, key, nullptr, 0);
  request.inject = true;
  request.has_data = true;
  request.data = data;
  return start(endpoint, request);
}

fi_ops_rma kRma = {.size = sizeof(fi_ops_rma),
                   .read = read_one,
                   .readv = move_pieces<FrameKind::kRead>,
                   .readmsg = move_message<FrameKind::kRead>,
                   .write = move_one<FrameKind::kWrite>,
                   .writev = move_pieces<FrameKind::kWrite>,
                   .writemsg = move_message<FrameKind::kWrite>,
                   .inject = inject,
                   .writedata = write_data,
                   .injectdata = inject_data};

}  // namespace

fi_ops_rma* rma_calls() { return &kRma; }

}  // namespace pacecar::fabric
