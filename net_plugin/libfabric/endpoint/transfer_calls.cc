// fi_send, fi_recv, fi_tsend, fi_trecv, fi_write, fi_read and their variants. Their arguments
// differ only behind the peer's address: nothing, a tag, or a remote address and its key. The
// arguments of fi_atomic and its variants differ only in the buffers behind the operands.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/endpoint/endpoint.h"
#include "net_plugin/libfabric/info.h"

namespace pacecar::fabric {
namespace {

Endpoint& endpoint_of(fid_ep* endpoint) { return *static_cast<Endpoint*>(endpoint); }

Local local_of(const void* buffer, size_t length, void* desc) {
  return Local::one(static_cast<uint8_t*>(const_cast<void*>(buffer)), length,
                    static_cast<MemoryRegion*>(desc));
}

// start() and receive() refuse more than kMaxIov pieces.
Local local_of(const iovec* iov, void* const* desc, size_t count) {
  Local local;
  for (size_t i = 0; i < std::min(count, kMaxIov); ++i) {
    local.pieces[i] = {static_cast<uint8_t*>(iov[i].iov_base), iov[i].iov_len};
    local.regions[i] = desc != nullptr ? static_cast<MemoryRegion*>(desc[i]) : nullptr;
  }
  local.count = count;
  return local;
}

// Starts any operation but a receive.
ssize_t start(fid_ep* endpoint, const OperationRequest& request) {
  return guarded([&]() -> ssize_t {
    Endpoint& at = endpoint_of(endpoint);
    if (request.local.count > kMaxIov) return -FI_EINVAL;
    if (request.local.bytes() > kMaxMessageBytes) return -FI_EMSGSIZE;
    if (request.injects() && request.local.bytes() > at.inject_bytes()) return -FI_EMSGSIZE;
    at.domain().note_call();
    const std::lock_guard lock(at.domain().mutex);
    return at.start(request);
  });
}

uint8_t data_flag(bool has_data) { return has_data ? kHasData : 0; }

void place(ReceiveRequest& /*request*/) {}
void place(ReceiveRequest& request, uint64_t tag, uint64_t ignore) {
  request.tagged = true;
  request.tag = tag;
  request.ignore = ignore;
}

void place(OperationRequest& /*request*/) {}
void place(OperationRequest& request, uint64_t tag) {
  request.frame.flags |= kTagged;
  request.frame.tag = tag;
}
void place(OperationRequest& request, uint64_t address, uint64_t key) {
  request.frame.address = address;
  request.frame.tag = key;
}

ssize_t receive(fid_ep* endpoint, ReceiveRequest& request) {
  return guarded([&]() -> ssize_t {
    Receive& receive = request.receive;
    if (receive.local.count > kMaxIov) return -FI_EINVAL;
    if (!request.tagged && (receive.flags & FI_MULTI_RECV) != 0) {
      if (receive.local.count != 1) return -FI_EINVAL;
      receive.shared = std::make_shared<SharedBuffer>();
    }
    Endpoint& at = endpoint_of(endpoint);
    at.domain().note_call();
    const std::lock_guard lock(at.domain().mutex);
    return at.receive(request);
  });
}

// `Message`: the structure of the call with all arguments. `Place` follows the peer.
template <typename Message, typename... Place>
struct Receives {
  static ssize_t one(fid_ep* endpoint, void* buffer, size_t length, void* desc, fi_addr_t source,
                     Place... tag, void* context) {
    return run(endpoint, local_of(buffer, length, desc), source, tag..., context);
  }

  static ssize_t pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count,
                        fi_addr_t source, Place... tag, void* context) {
    return run(endpoint, local_of(iov, desc, count), source, tag..., context);
  }

  static ssize_t by_message(fid_ep* endpoint, const Message* message, uint64_t flags) {
    const Local local = local_of(message->msg_iov, message->desc, message->iov_count);
    ReceiveRequest request{
        .from = message->addr,
        .receive = {.context = message->context, .flags = flags, .local = local}};
    if constexpr (sizeof...(Place) > 0) place(request, message->tag, message->ignore);
    return receive(endpoint, request);
  }

 private:
  static ssize_t run(fid_ep* endpoint, const Local& local, fi_addr_t source, Place... tag,
                     void* context) {
    const uint64_t flags = endpoint_of(endpoint).rx_flags();
    ReceiveRequest request{.from = source,
                           .receive = {.context = context, .flags = flags, .local = local}};
    place(request, tag...);
    return receive(endpoint, request);
  }
};

// The variants of a send, a write or a read: `Place` follows the peer.
template <FrameKind kKind, typename Message, typename... Place>
struct Starts {
  static ssize_t one(fid_ep* endpoint, const void* buffer, size_t length, void* desc,
                     fi_addr_t peer, Place... where, void* context) {
    return run(endpoint, local_of(buffer, length, desc), {}, peer, where..., context);
  }

  static ssize_t pieces(fid_ep* endpoint, const iovec* iov, void** desc, size_t count,
                        fi_addr_t peer, Place... where, void* context) {
    return run(endpoint, local_of(iov, desc, count), {}, peer, where..., context);
  }

  static ssize_t by_message(fid_ep* endpoint, const Message* message, uint64_t flags) {
    OperationRequest request{.frame = {.kind = kKind,
                                       .flags = data_flag((flags & FI_REMOTE_CQ_DATA) != 0),
                                       .data = message->data},
                             .local = local_of(message->msg_iov, message->desc, message->iov_count),
                             .to = message->addr,
                             .context = message->context,
                             .flags = flags};
    if constexpr (requires { message->tag; }) place(request, message->tag);
    if constexpr (requires { message->rma_iov; }) {
      if (message->rma_iov_count > 1) return -FI_EINVAL;
      // Without a remote segment it moves no bytes; its address and key are 0.
      const fi_rma_iov none{};
      const fi_rma_iov& remote = message->rma_iov_count > 0 ? *message->rma_iov : none;
      place(request, remote.addr, remote.key);
    }
    return start(endpoint, request);
  }

  static ssize_t inject(fid_ep* endpoint, const void* buffer, size_t length, fi_addr_t to,
                        Place... where) {
    return run(endpoint, local_of(buffer, length, nullptr), {}, to, where..., nullptr, true);
  }

  static ssize_t with_data(fid_ep* endpoint, const void* buffer, size_t length, void* desc,
                           uint64_t data, fi_addr_t to, Place... where, void* context) {
    return run(endpoint, local_of(buffer, length, desc), data, to, where..., context);
  }

  static ssize_t inject_data(fid_ep* endpoint, const void* buffer, size_t length, uint64_t data,
                             fi_addr_t to, Place... where) {
    return run(endpoint, local_of(buffer, length, nullptr), data, to, where..., nullptr, true);
  }

 private:
  static ssize_t run(fid_ep* endpoint, const Local& local, std::optional<uint64_t> data,
                     fi_addr_t peer, Place... where, void* context, bool inject = false) {
    OperationRequest request{
        .frame = {.kind = kKind, .flags = data_flag(data.has_value()), .data = data.value_or(0)},
        .inject = inject,
        .local = local,
        .to = peer,
        .context = context,
        .flags = inject ? 0 : endpoint_of(endpoint).tx_flags()};
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

// Elements in local memory, as pieces of bytes; `descs` may be null. run() refuses more than
// kMaxIov pieces, and too many elements, which become more than kAtomicBytes.
Local elements_of(fi_datatype datatype, const fi_ioc* iov, void* const* descs, size_t count) {
  Local local;
  local.count = count;
  for (size_t i = 0; i < std::min(count, kMaxIov); ++i) {
    const size_t element = datatype_bytes(static_cast<uint8_t>(datatype));
    const size_t bytes = iov[i].count > kAtomicBytes ? kAtomicBytes + 1 : iov[i].count * element;
    local.pieces[i] = {static_cast<uint8_t*>(iov[i].addr), bytes};
    if (descs != nullptr) local.regions[i] = static_cast<MemoryRegion*>(descs[i]);
  }
  return local;
}

// Where the results of an operation that fetches go, and the comparands of one that compares.
struct Others {
  std::optional<Local> results;
  std::optional<Local> comparands;
};
Others others_of(fi_datatype /*datatype*/, size_t /*count*/) { return {}; }
Others others_of(fi_datatype datatype, size_t /*count*/, const fi_ioc* results, void** descs,
                 size_t pieces) {
  return {elements_of(datatype, results, descs, pieces), {}};
}
Others others_of(fi_datatype datatype, size_t /*count*/, const fi_ioc* comparands,
                 void** comparand_descs, size_t comparand_pieces, const fi_ioc* results,
                 void** descs, size_t pieces) {
  return {elements_of(datatype, results, descs, pieces),
          elements_of(datatype, comparands, comparand_descs, comparand_pieces)};
}
Others others_of(fi_datatype datatype, size_t count, void* result, void* desc) {
  const fi_ioc results{result, count};
  return others_of(datatype, count, &results, &desc, 1);
}
Others others_of(fi_datatype datatype, size_t count, const void* comparand, void* comparand_desc,
                 void* result, void* desc) {
  const fi_ioc comparands{const_cast<void*>(comparand), count};
  const fi_ioc results{result, count};
  return others_of(datatype, count, &comparands, &comparand_desc, 1, &results, &desc, 1);
}

bool known(fi_datatype datatype, fi_op op, bool fetches, bool compares) {
  return op >= 0 && op < kAtomicOps && datatype >= 0 && datatype < kDatatypes &&
         atomic_valid(static_cast<uint8_t>(op), static_cast<uint8_t>(datatype), fetches, compares);
}

ssize_t run(fid_ep* endpoint, const fi_msg_atomic& message, uint64_t flags, const Others& others,
            bool inject = false) {
  const bool fetches = others.results.has_value();
  const bool compares = others.comparands.has_value();
  if (!known(message.datatype, message.op, fetches, compares)) return -FI_EOPNOTSUPP;
  OperationRequest request{.frame = {.kind = FrameKind::kAtomic,
                                     .flags = data_flag((flags & FI_REMOTE_CQ_DATA) != 0),
                                     .operation = static_cast<uint8_t>(message.op),
                                     .datatype = static_cast<uint8_t>(message.datatype),
                                     .data = message.data},
                           .inject = inject,
                           .to = message.addr,
                           .context = message.context,
                           .flags = flags,
                           .comparands = others.comparands.value_or(Local()),
                           .results = others.results.value_or(Local())};
  if (fetches) request.frame.flags |= kFetches;
  if (compares) request.frame.flags |= kCompares;
  const bool fit = message.rma_iov_count == 1 && message.iov_count <= kMaxIov &&
                   request.comparands.count <= kMaxIov && request.results.count <= kMaxIov;
  if (!fit) return -FI_EINVAL;
  place(request, message.rma_iov[0].addr, message.rma_iov[0].key);
  const bool reads = message.op == FI_ATOMIC_READ;
  if (!reads) {
    request.local = elements_of(message.datatype, message.msg_iov, message.desc, message.iov_count);
  }
  const size_t operands = request.local.bytes();
  const bool alike = (!compares || request.comparands.bytes() == operands) &&
                     (!fetches || reads || request.results.bytes() == operands);
  if (!alike) return -FI_EINVAL;
  if (operands > kAtomicBytes || request.results.bytes() > kAtomicBytes) return -FI_EMSGSIZE;
  return start(endpoint, request);
}

// `Other`: the arguments of others_of() beyond the first two.
template <typename... Other>
struct Atomics {
  static ssize_t one(fid_ep* endpoint, const void* buffer, size_t count, void* desc, Other... other,
                     fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                     void* context) {
    const fi_ioc operands{const_cast<void*>(buffer), count};
    const fi_rma_ioc remote{address, count, key};
    return run(endpoint, {&operands, &desc, 1, to, &remote, 1, datatype, op, context, 0},
               endpoint_of(endpoint).tx_flags(), others_of(datatype, count, other...));
  }

  static ssize_t pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count,
                        Other... other, fi_addr_t to, uint64_t address, uint64_t key,
                        fi_datatype datatype, fi_op op, void* context) {
    const fi_rma_ioc remote{address, count, key};
    return run(endpoint, {iov, descs, count, to, &remote, 1, datatype, op, context, 0},
               endpoint_of(endpoint).tx_flags(), others_of(datatype, count, other...));
  }

  static ssize_t by_message(fid_ep* endpoint, const fi_msg_atomic* message, Other... other,
                            uint64_t flags) {
    return run(endpoint, *message, flags, others_of(message->datatype, 0, other...));
  }
};
using Fetches = Atomics<fi_ioc*, void**, size_t>;
using Compares = Atomics<const fi_ioc*, void**, size_t, fi_ioc*, void**, size_t>;

ssize_t inject_atomic(fid_ep* endpoint, const void* buffer, size_t count, fi_addr_t to,
                      uint64_t address, uint64_t key, fi_datatype datatype, fi_op op) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  const fi_rma_ioc remote{address, count, key};
  return run(endpoint, {&operands, nullptr, 1, to, &remote, 1, datatype, op, nullptr, 0}, 0, {},
             true);
}

template <bool kFetches, bool kCompares>
int valid(fid_ep* /*endpoint*/, fi_datatype datatype, fi_op op, size_t* count) {
  if (!known(datatype, op, kFetches, kCompares)) return -FI_EOPNOTSUPP;
  *count = kAtomicBytes / datatype_bytes(static_cast<uint8_t>(datatype));
  return 0;
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

fi_ops_atomic atomic_calls = {.size = sizeof(fi_ops_atomic),
                              .write = Atomics<>::one,
                              .writev = Atomics<>::pieces,
                              .writemsg = Atomics<>::by_message,
                              .inject = inject_atomic,
                              .readwrite = Atomics<void*, void*>::one,
                              .readwritev = Fetches::pieces,
                              .readwritemsg = Fetches::by_message,
                              .compwrite = Atomics<const void*, void*, void*, void*>::one,
                              .compwritev = Compares::pieces,
                              .compwritemsg = Compares::by_message,
                              .writevalid = valid<false, false>,
                              .readwritevalid = valid<true, false>,
                              .compwritevalid = valid<true, true>};

int query_atomic(fid_domain* /*domain*/, fi_datatype datatype, fi_op op, fi_atomic_attr* attr,
                 uint64_t flags) {
  const bool compares = (flags & FI_COMPARE_ATOMIC) != 0;
  const bool fetches = compares || (flags & FI_FETCH_ATOMIC) != 0;
  if (!known(datatype, op, fetches, compares)) return -FI_EOPNOTSUPP;
  attr->size = datatype_bytes(static_cast<uint8_t>(datatype));
  attr->count = kAtomicBytes / attr->size;
  return 0;
}

}  // namespace pacecar::fabric
