// fi_atomic, fi_fetch_atomic, fi_compare_atomic and their variants. Each variant calls the next
// more general one; the most general takes a fi_msg_atomic.
#include "net_plugin/libfabric/calls.h"
#include "net_plugin/libfabric/core/atomics.h"

namespace pacecar::fabric {
namespace {

// Elements in local memory, and the descriptors of that memory; `descs` may be null.
struct Elements {
  const fi_ioc* iov = nullptr;
  void* const* descs = nullptr;
  size_t count = 0;
};

// As pieces of bytes. Too many elements become more than kAtomicBytes, which the caller refuses.
Local local_of(const Elements& elements, size_t element) {
  Local local;
  for (size_t i = 0; i < elements.count; ++i) {
    const fi_ioc& at = elements.iov[i];
    const size_t bytes = at.count > kAtomicBytes ? kAtomicBytes + 1 : at.count * element;
    local.pieces[i] = {static_cast<uint8_t*>(at.addr), bytes};
    if (elements.descs != nullptr) {
      local.regions[i] = static_cast<MemoryRegion*>(elements.descs[i]);
    }
  }
  local.count = elements.count;
  return local;
}

bool known(fi_datatype datatype, fi_op op, bool fetches, bool compares) {
  return op >= 0 && op < kAtomicOps && datatype >= 0 && datatype < kDatatypes &&
         atomic_valid(static_cast<uint8_t>(op), static_cast<uint8_t>(datatype), fetches, compares);
}

// `results`: of an operation that fetches; `comparands`: of one that compares; else null.
ssize_t run(fid_ep* endpoint, const fi_msg_atomic& message, uint64_t flags, const Elements* results,
            const Elements* comparands, bool inject = false) {
  const bool fetches = results != nullptr;
  const bool compares = comparands != nullptr;
  if (!known(message.datatype, message.op, fetches, compares)) return -FI_EOPNOTSUPP;
  const bool fit = message.rma_iov_count == 1 && message.iov_count <= kMaxIov &&
                   (!fetches || results->count <= kMaxIov) &&
                   (!compares || comparands->count <= kMaxIov);
  if (!fit) return -FI_EINVAL;
  const auto type = static_cast<uint8_t>(message.datatype);
  const size_t element = datatype_bytes(type);
  OperationRequest request{.kind = FrameKind::kAtomic,
                           .inject = inject,
                           .has_data = (flags & FI_REMOTE_CQ_DATA) != 0,
                           .to = message.addr,
                           .tag = message.rma_iov[0].key,
                           .address = message.rma_iov[0].addr,
                           .data = message.data,
                           .context = message.context,
                           .flags = flags,
                           .operation = static_cast<uint8_t>(message.op),
                           .datatype = type,
                           .fetches = fetches,
                           .compares = compares};
  const bool reads = message.op == FI_ATOMIC_READ;
  if (!reads) request.local = local_of({message.msg_iov, message.desc, message.iov_count}, element);
  if (compares) request.comparands = local_of(*comparands, element);
  if (fetches) request.results = local_of(*results, element);
  const size_t operands = request.local.bytes();
  const bool alike = (!compares || request.comparands.bytes() == operands) &&
                     (!fetches || reads || request.results.bytes() == operands);
  if (!alike) return -FI_EINVAL;
  if (operands > kAtomicBytes || request.results.bytes() > kAtomicBytes) {
    return -FI_EMSGSIZE;
  }
  return start(endpoint, request);
}

uint64_t flags_of(fid_ep* endpoint) { return endpoint_of(endpoint).tx_flags(); }

ssize_t change_message(fid_ep* endpoint, const fi_msg_atomic* message, uint64_t flags) {
  return run(endpoint, *message, flags, nullptr, nullptr);
}

ssize_t change_pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count, fi_addr_t to,
                      uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                      void* context) {
  const fi_rma_ioc remote{address, count, key};
  const fi_msg_atomic message{iov, descs, count, to, &remote, 1, datatype, op, context, 0};
  return change_message(endpoint, &message, flags_of(endpoint));
}

ssize_t change(fid_ep* endpoint, const void* buffer, size_t count, void* desc, fi_addr_t to,
               uint64_t address, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  return change_pieces(endpoint, &operands, &desc, 1, to, address, key, datatype, op, context);
}

ssize_t inject(fid_ep* endpoint, const void* buffer, size_t count, fi_addr_t to, uint64_t address,
               uint64_t key, fi_datatype datatype, fi_op op) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  const fi_rma_ioc remote{address, count, key};
  const fi_msg_atomic message{&operands, nullptr, 1, to, &remote, 1, datatype, op, nullptr, 0};
  return run(endpoint, message, 0, nullptr, nullptr, true);
}

ssize_t fetch_message(fid_ep* endpoint, const fi_msg_atomic* message, fi_ioc* results,
                      void** result_descs, size_t result_count, uint64_t flags) {
  const Elements to{results, result_descs, result_count};
  return run(endpoint, *message, flags, &to, nullptr);
}

ssize_t fetch_pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count,
                     fi_ioc* results, void** result_descs, size_t result_count, fi_addr_t to,
                     uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                     void* context) {
  const fi_rma_ioc remote{address, count, key};
  const fi_msg_atomic message{iov, descs, count, to, &remote, 1, datatype, op, context, 0};
  return fetch_message(endpoint, &message, results, result_descs, result_count, flags_of(endpoint));
}

ssize_t fetch(fid_ep* endpoint, const void* buffer, size_t count, void* desc, void* result,
              void* result_desc, fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype,
              fi_op op, void* context) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  fi_ioc results{result, count};
  return fetch_pieces(endpoint, &operands, &desc, 1, &results, &result_desc, 1, to, address, key,
                      datatype, op, context);
}

ssize_t compare_message(fid_ep* endpoint, const fi_msg_atomic* message, const fi_ioc* comparands,
                        void** comparand_descs, size_t comparand_count, fi_ioc* results,
                        void** result_descs, size_t result_count, uint64_t flags) {
  const Elements to{results, result_descs, result_count};
  const Elements with{comparands, comparand_descs, comparand_count};
  return run(endpoint, *message, flags, &to, &with);
}

ssize_t compare_pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count,
                       const fi_ioc* comparands, void** comparand_descs, size_t comparand_count,
                       fi_ioc* results, void** result_descs, size_t result_count, fi_addr_t to,
                       uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                       void* context) {
  const fi_rma_ioc remote{address, count, key};
  const fi_msg_atomic message{iov, descs, count, to, &remote, 1, datatype, op, context, 0};
  return compare_message(endpoint, &message, comparands, comparand_descs, comparand_count, results,
                         result_descs, result_count, flags_of(endpoint));
}

ssize_t compare(fid_ep* endpoint, const void* buffer, size_t count, void* desc,
                const void* comparand, void* comparand_desc, void* result, void* result_desc,
                fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                void* context) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  const fi_ioc comparands{const_cast<void*>(comparand), count};
  fi_ioc results{result, count};
  return compare_pieces(endpoint, &operands, &desc, 1, &comparands, &comparand_desc, 1, &results,
                        &result_desc, 1, to, address, key, datatype, op, context);
}

template <bool kFetches, bool kCompares>
int valid(fid_ep* /*endpoint*/, fi_datatype datatype, fi_op op, size_t* count) {
  if (!known(datatype, op, kFetches, kCompares)) return -FI_EOPNOTSUPP;
  *count = kAtomicBytes / datatype_bytes(static_cast<uint8_t>(datatype));
  return 0;
}

}  // namespace

fi_ops_atomic atomic_calls = {.size = sizeof(fi_ops_atomic),
                              .write = change,
                              .writev = change_pieces,
                              .writemsg = change_message,
                              .inject = inject,
                              .readwrite = fetch,
                              .readwritev = fetch_pieces,
                              .readwritemsg = fetch_message,
                              .compwrite = compare,
                              .compwritev = compare_pieces,
                              .compwritemsg = compare_message,
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
