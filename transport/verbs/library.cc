#include "transport/verbs/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include "transport/base/check.h"

// The header defines these as macros for inline functions.
#undef ibv_query_port
#undef ibv_reg_mr

// FUNCTION(version of the symbol, name, parameters, arguments): the functions that are used.
#define PACECAR_VERBS_FUNCTIONS(FUNCTION)                                                          \
  FUNCTION(                                                                                        \
      "1.11", _ibv_query_gid_table,                                                                \
      (ibv_context * context, ibv_gid_entry * entries, size_t most, uint32_t flags, size_t size),  \
      (context, entries, most, flags, size))                                                       \
  FUNCTION("1.1", ibv_ack_async_event, (ibv_async_event * event), (event))                         \
  FUNCTION("1.1", ibv_ack_cq_events, (ibv_cq * queue, unsigned count), (queue, count))             \
  FUNCTION("1.1", ibv_alloc_pd, (ibv_context * context), (context))                                \
  FUNCTION("1.1", ibv_close_device, (ibv_context * context), (context))                            \
  FUNCTION("1.0", ibv_create_comp_channel, (ibv_context * context), (context))                     \
  FUNCTION("1.1", ibv_create_cq,                                                                   \
           (ibv_context * context, int entries, void* own, ibv_comp_channel* channel, int vector), \
           (context, entries, own, channel, vector))                                               \
  FUNCTION("1.1", ibv_create_qp, (ibv_pd * pd, ibv_qp_init_attr * attr), (pd, attr))               \
  FUNCTION("1.1", ibv_create_srq, (ibv_pd * pd, ibv_srq_init_attr * attr), (pd, attr))             \
  FUNCTION("1.1", ibv_dealloc_pd, (ibv_pd * pd), (pd))                                             \
  FUNCTION("1.1", ibv_dereg_mr, (ibv_mr * region), (region))                                       \
  FUNCTION("1.0", ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel))               \
  FUNCTION("1.1", ibv_destroy_cq, (ibv_cq * queue), (queue))                                       \
  FUNCTION("1.1", ibv_destroy_qp, (ibv_qp * qp), (qp))                                             \
  FUNCTION("1.1", ibv_destroy_srq, (ibv_srq * queue), (queue))                                     \
  FUNCTION("1.1", ibv_event_type_str, (ibv_event_type type), (type))                               \
  FUNCTION("1.1", ibv_fork_init, (), ())                                                           \
  FUNCTION("1.1", ibv_free_device_list, (ibv_device * *list), (list))                              \
  FUNCTION("1.1", ibv_get_async_event, (ibv_context * context, ibv_async_event * event),           \
           (context, event))                                                                       \
  FUNCTION("1.1", ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq * *queue, void** own),     \
           (channel, queue, own))                                                                  \
  FUNCTION("1.1", ibv_get_device_guid, (ibv_device * device), (device))                            \
  FUNCTION("1.1", ibv_get_device_list, (int* count), (count))                                      \
  FUNCTION("1.1", ibv_get_device_name, (ibv_device * device), (device))                            \
  FUNCTION("1.13", ibv_is_fork_initialized, (), ())                                                \
  FUNCTION("1.1", ibv_modify_qp, (ibv_qp * qp, ibv_qp_attr * values, int mask),                    \
           (qp, values, mask))                                                                     \
  FUNCTION("1.1", ibv_open_device, (ibv_device * device), (device))                                \
  FUNCTION("1.1", ibv_port_state_str, (ibv_port_state state), (state))                             \
  FUNCTION("1.1", ibv_query_device, (ibv_context * context, ibv_device_attr * attr),               \
           (context, attr))                                                                        \
  FUNCTION("1.1", ibv_query_port,                                                                  \
           (ibv_context * context, uint8_t port, _compat_ibv_port_attr * attr),                    \
           (context, port, attr))                                                                  \
  FUNCTION("1.12", ibv_reg_dmabuf_mr,                                                              \
           (ibv_pd * pd, uint64_t offset, size_t bytes, uint64_t address, int file, int access),   \
           (pd, offset, bytes, address, file, access))                                             \
  FUNCTION("1.1", ibv_reg_mr, (ibv_pd * pd, void* address, size_t bytes, int access),              \
           (pd, address, bytes, access))                                                           \
  FUNCTION("1.8", ibv_reg_mr_iova2,                                                                \
           (ibv_pd * pd, void* address, size_t bytes, uint64_t own, unsigned access),              \
           (pd, address, bytes, own, access))

namespace pacecar {
namespace {

struct Functions {
#define PACECAR_MEMBER(version, name, parameters, arguments) decltype(&::name) name = nullptr;
  PACECAR_VERBS_FUNCTIONS(PACECAR_MEMBER)
#undef PACECAR_MEMBER
};

struct VerbsLibrary {
  VerbsLibrary() : handle(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) {
      loaded = fail(ErrorCode::kUnavailable,
                    fmt::format("libibverbs is not there ({}): install it with its drivers "
                                "(libibverbs1, ibverbs-providers)",
                                dlerror()));
    }
#define PACECAR_FIND(version, name, parameters, arguments) \
  find(functions.name, #name, "IBVERBS_" version);
    PACECAR_VERBS_FUNCTIONS(PACECAR_FIND)
#undef PACECAR_FIND
  }

  // A replacement of the function comes first (LD_PRELOAD), then the function of the library.
  template <typename Function>
  void find(Function& function, const char* name, const char* version) {
    void* found = dlsym(RTLD_DEFAULT, name);
    const bool replaced = found != nullptr && (handle == nullptr || found != dlsym(handle, name));
    if (!replaced && handle != nullptr) found = dlvsym(handle, name, version);
    function = reinterpret_cast<Function>(found);
    if (found == nullptr && loaded) {
      loaded = fail(ErrorCode::kUnavailable,
                    fmt::format("libibverbs lacks {}: install rdma-core 35 or later", name));
    }
  }

  void* handle;  // never closed
  Functions functions;
  Result<void> loaded;
};

const VerbsLibrary& library() {
  static const VerbsLibrary library;
  return library;
}

const Functions& functions() {
  PACECAR_CHECK(library().loaded.has_value());
  return library().functions;
}

}  // namespace

Result<void> load_verbs_library() { return library().loaded; }

}  // namespace pacecar

// Weak, so that a test may define its own.
#define PACECAR_DEFINE(version, name, parameters, arguments)      \
  extern "C" [[gnu::weak, gnu::visibility("hidden")]] auto name   \
      parameters->decltype(pacecar::functions().name arguments) { \
    return pacecar::functions().name arguments;                   \
  }
PACECAR_VERBS_FUNCTIONS(PACECAR_DEFINE)
#undef PACECAR_DEFINE
