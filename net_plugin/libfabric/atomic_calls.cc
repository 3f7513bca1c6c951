// fi_atomic, fi_fetch_atomic, fi_compare_atomic and their variants.
#include "net_plugin/libfabric/calls.h"
#include "net_plugin/libfabric/core/atomics.h"

namespace pacecar::fabric {
namespace {

// Operation, datatype and remote address.
struct What {
  fi_addr_t to = FI_ADDR_UNSPEC;
  uint64_t address = 0;
  uint64_t key = 0;
  fi_datatype datatype = FI_INT8;
  fi_op op = FI_MIN;
  void* context = nullptr;
  uint64_t flags = 0;
};

// The local memory of elements, and its registrations; `descs` may be null.
struct Elements {
  const fi_ioc* iov = nullptr;
  void* const* descs = nullptr;
  size_t count = 0;
};

struct Vectors {
  Elements operands;
  Elements comparands = {};
  Elements results = {};

  bool fit() const {
    return operands.count <= kMaxIov && comparands.count <= kMaxIov && results.count <= kMaxIov;
  }
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

ssize_t run(fid_ep* endpoint, const Vectors& vectors, const What& what, bool fetches, bool compares,
            bool inject = false) {
  const auto op = static_cast<uint8_t>(what.op);
  const auto type = static_cast<uint8_t>(what.datatype);
  const bool known = what.op >= 0 && what.op < kAtomicOps && what.datatype >= 0 &&
                     what.datatype < kDatatypes && atomic_valid(op, type, fetches, compares);
  if (!known) return -FI_EOPNOTSUPP;
  if (!vectors.fit()) return -FI_EINVAL;
  const size_t element = datatype_bytes(type);
  OperationRequest request{.kind = FrameKind::kAtomic,
                           .inject = inject,
                           .has_data = (what.flags & FI_REMOTE_CQ_DATA) != 0,
                           .to = what.to,
                           .tag = what.key,
                           .address = what.address,
                           .context = what.context,
                           .flags = what.flags,
                           .operation = op,
                           .datatype = type,
                           .fetches = fetches,
                           .compares = compares};
  if (what.op != FI_ATOMIC_READ) {
    request.local = local_of(vectors.operands, element);
  }
  request.comparands = local_of(vectors.comparands, element);
  request.results = local_of(vectors.results, element);
  const size_t operands = request.local.bytes();
  const bool alike = (!compares || request.comparands.bytes() == operands) &&
                     (!fetches || what.op == FI_ATOMIC_READ || request.results.bytes() == operands);
  if (!alike) return -FI_EINVAL;
  if (operands > kAtomicBytes || request.results.bytes() > kAtomicBytes) {
    return -FI_EMSGSIZE;
  }
  return start(endpoint, request);
}

What what_of(const fi_msg_atomic& message, uint64_t flags) {
  return {.to = message.addr,
          .address = message.rma_iov[0].addr,
          .key = message.rma_iov[0].key,
          .datatype = message.datatype,
          .op = message.op,
          .context = message.context,
          .flags = flags};
}

uint64_t flags_of(fid_ep* endpoint) { return endpoint_of(endpoint).tx_flags(); }

ssize_t change(fid_ep* endpoint, const void* buffer, size_t count, void* desc, fi_addr_t to,
               uint64_t address, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  return run(endpoint, {.operands = {&operands, &desc, 1}},
             {to, address, key, datatype, op, context, flags_of(endpoint)}, false, false);
}

ssize_t change_pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count, fi_addr_t to,
                      uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                      void* context) {
  return run(endpoint, {.operands = {iov, descs, count}},
             {to, address, key, datatype, op, context, flags_of(endpoint)}, false, false);
}

ssize_t change_message(fid_ep* endpoint, const fi_msg_atomic* message, uint64_t flags) {
  if (message->rma_iov_count != 1) return -FI_EINVAL;
  return run(endpoint, {.operands = {message->msg_iov, message->desc, message->iov_count}},
             what_of(*message, flags), false, false);
}

ssize_t inject(fid_ep* endpoint, const void* buffer, size_t count, fi_addr_t to, uint64_t address,
               uint64_t key, fi_datatype datatype, fi_op op) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  return run(endpoint, {.operands = {&operands, nullptr, 1}},
             {to, address, key, datatype, op, nullptr, 0}, false, false, true);
}

ssize_t fetch(fid_ep* endpoint, const void* buffer, size_t count, void* desc, void* result,
              void* result_desc, fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype,
              fi_op op, void* context) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  const fi_ioc results{result, count};
  return run(endpoint, {.operands = {&operands, &desc, 1}, .results = {&results, &result_desc, 1}},
             {to, address, key, datatype, op, context, flags_of(endpoint)}, true, false);
}

ssize_t fetch_pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count,
                     fi_ioc* results, void** result_descs, size_t result_count, fi_addr_t to,
                     uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                     void* context) {
  return run(endpoint,
             {.operands = {iov, descs, count}, .results = {results, result_descs, result_count}},
             {to, address, key, datatype, op, context, flags_of(endpoint)}, true, false);
}

ssize_t fetch_message(fid_ep* endpoint, const fi_msg_atomic* message, fi_ioc* results,
                      void** result_descs, size_t result_count, uint64_t flags) {
  if (message->rma_iov_count != 1) return -FI_EINVAL;
  return run(endpoint,
             {.operands = {message->msg_iov, message->desc, message->iov_count},
              .results = {results, result_descs, result_count}},
             what_of(*message, flags), true, false);
}

ssize_t compare(fid_ep* endpoint, const void* buffer, size_t count, void* desc,
                const void* comparand, void* comparand_desc, void* result, void* result_desc,
                fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                void* context) {
  const fi_ioc operands{const_cast<void*>(buffer), count};
  const fi_ioc comparands{const_cast<void*>(comparand), count};
  const fi_ioc results{result, count};
  return run(
      endpoint,
      {{&operands, &desc, 1}, {&comparands, &comparand_desc, 1}, {&results, &result_desc, 1}},
      {to, address, key, datatype, op, context, flags_of(endpoint)}, true, true);
}

ssize_t compare_pieces(fid_ep* endpoint, const fi_ioc* iov, void** descs, size_t count,
                       const fi_ioc* comparands, void** comparand_descs, size_t comparand_count,
                       fi_ioc* results, void** result_descs, size_t result_count, fi_addr_t to,
                       uint64_t address, uint64_t key, fi_datatype datatype, fi_op op,
                       void* context) {
  return run(endpoint,
             {{iov, descs, count},
              {comparands, comparand_descs, comparand_count},
              {results, result_descs, result_count}},
             {to, address, key, datatype, op, context, flags_of(endpoint)}, true, true);
}

ssize_t compare_message(fid_ep* endpoint, const fi_msg_atomic* message, const fi_ioc* comparands,
                        void** comparand_descs, size_t comparand_count, fi_ioc* results,
                        void** result_descs, size_t result_count, uint64_t flags) {
  if (message->rma_iov_count != 1) return -FI_EINVAL;
  return run(endpoint,
             {{message->msg_iov, message->desc, message->iov_count},
              {comparands, comparand_descs, comparand_count},
              {results, result_descs, result_count}},
             what_of(*message, flags), true, true);
}

int valid(fi_datatype datatype, fi_op op, size_t* count, bool fetches, bool compares) {
  const bool known = op >= 0 && op < kAtomicOps && datatype >= 0 && datatype < kDatatypes;
  const auto type = static_cast<uint8_t>(datatype);
  if (!known || !atomic_valid(static_cast<uint8_t>(op), type, fetches, compares)) {
    return -FI_EOPNOTSUPP;
  }
  *count = kAtomicBytes / datatype_bytes(type);
  return 0;
}

int change_valid(fid_ep* /*endpoint*/, fi_datatype datatype, fi_op op, size_t* count) {
  return valid(datatype, op, count, false, false);
}
int fetch_valid(fid_ep* /*endpoint*/, fi_datatype datatype, fi_op op, size_t* count) {
  return valid(datatype, op, count, true, false);
}
int compare_valid(fid_ep* /*endpoint*/, fi_datatype datatype, fi_op op, size_t* count) {
  return valid(datatype, op, count, true, true);
}

fi_ops_atomic kAtomics = {.size = sizeof(fi_ops_atomic),
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
                          .writevalid = change_valid,
                          .readwritevalid = fetch_valid,
                          .compwritevalid = compare_valid};

}  // namespace

fi_ops_atomic* atomic_calls() { return &kAtomics; }

}  // namespace pacecar::fabric
