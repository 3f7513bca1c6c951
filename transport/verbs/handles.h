// Owning pointers for the objects of libibverbs. An object must not outlive the object it was made
// from: members are declared in that order.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace pacecar {

// Deletes with the library's function, which fails only if the device, and so the object, is gone.
template <auto destroy>
struct VerbsDeleter {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};

template <typename T, auto destroy>
using VerbsHandle = std::unique_ptr<T, VerbsDeleter<destroy>>;

using ContextHandle = VerbsHandle<ibv_context, ibv_close_device>;
using DomainHandle = VerbsHandle<ibv_pd, ibv_dealloc_pd>;
using ChannelHandle = VerbsHandle<ibv_comp_channel, ibv_destroy_comp_channel>;
using CompletionQueueHandle = VerbsHandle<ibv_cq, ibv_destroy_cq>;
using SharedReceivesHandle = VerbsHandle<ibv_srq, ibv_destroy_srq>;
using QueuePairHandle = VerbsHandle<ibv_qp, ibv_destroy_qp>;
using MemoryHandle = VerbsHandle<ibv_mr, ibv_dereg_mr>;

}  // namespace pacecar
