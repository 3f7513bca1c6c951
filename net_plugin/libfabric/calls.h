// The call tables of an endpoint, and what they share: conversion of arguments for Endpoint.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "net_plugin/libfabric/endpoint.h"
#include "net_plugin/libfabric/info.h"

namespace pacecar::fabric {

extern fi_ops_msg message_calls;
extern fi_ops_tagged tagged_calls;
extern fi_ops_rma rma_calls;
extern fi_ops_atomic atomic_calls;

inline Endpoint& endpoint_of(fid_ep* endpoint) { return *static_cast<Endpoint*>(endpoint); }

inline Local local_of(const void* buffer, size_t length, void* desc) {
  return Local::one(static_cast<uint8_t*>(const_cast<void*>(buffer)), length,
                    static_cast<MemoryRegion*>(desc));
}

// The caller has checked that `count` is at most kMaxIov.
inline Local local_of(const iovec* iov, void* const* desc, size_t count) {
  Local local;
  for (size_t i = 0; i < count; ++i) {
    local.pieces[i] = {static_cast<uint8_t*>(iov[i].iov_base), iov[i].iov_len};
    local.regions[i] = desc != nullptr ? static_cast<MemoryRegion*>(desc[i]) : nullptr;
  }
  local.count = count;
  return local;
}

// Starts any operation but a receive.
inline ssize_t start(fid_ep* endpoint, const OperationRequest& request) {
  return guarded([&]() -> ssize_t {
    Endpoint& at = endpoint_of(endpoint);
    if (request.local.bytes() > kMaxMessageBytes) return -FI_EMSGSIZE;
    if (request.inject && request.local.bytes() > at.inject_bytes()) return -FI_EMSGSIZE;
    at.domain().note_call();
    const std::lock_guard lock(at.domain().mutex);
    return at.start(request);
  });
}

}  // namespace pacecar::fabric
