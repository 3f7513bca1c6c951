// Functions of libibverbs that concern no device, objects never ours, or what our devices lack. The
// real library, if any, executes them; they are here so that this one can replace it.
#include <infiniband/verbs.h>

#include <cerrno>

#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/objects.h"

struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ib_user_path_rec;
struct ibv_sa_path_rec;

namespace pacecar::ibverbs {
extern "C" {

// clang-format off
// `own`: the result without a real library.
#define WITHOUT_DEVICE(own, type, name, parameters, ...) \
  PACECAR_VERBS type name parameters { return have_real() ? CALL_REAL(name)(__VA_ARGS__) : (own); }

WITHOUT_DEVICE(type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown", const char*,
               ibv_node_type_str, (ibv_node_type type), type)
WITHOUT_DEVICE(state == IBV_PORT_ACTIVE ? "active" : "down", const char*, ibv_port_state_str,
               (ibv_port_state state), state)
WITHOUT_DEVICE("asynchronous event", const char*, ibv_event_type_str, (ibv_event_type event), event)
WITHOUT_DEVICE(status == IBV_WC_SUCCESS ? "success" : "work completion error", const char*,
               ibv_wc_status_str, (ibv_wc_status status), status)
// Rates by their codes, for address handles: our devices ignore them.
WITHOUT_DEVICE(-1, int, ibv_rate_to_mult, (ibv_rate rate), rate)
WITHOUT_DEVICE(IBV_RATE_MAX, ibv_rate, mult_to_ibv_rate, (int multiple), multiple)
WITHOUT_DEVICE(-1, int, ibv_rate_to_mbps, (ibv_rate rate), rate)
WITHOUT_DEVICE(IBV_RATE_MAX, ibv_rate, mbps_to_ibv_rate, (int mbps), mbps)
// Our regions are ordinary memory, which a child process copies.
WITHOUT_DEVICE(0, int, ibv_fork_init, ())
WITHOUT_DEVICE(IBV_FORK_UNNEEDED, ibv_fork_status, ibv_is_fork_initialized, ())
WITHOUT_DEVICE(-1, int, ibv_read_sysfs_file,
               (const char* folder, const char* file, char* line, size_t size), folder, file, line,
               size)
WITHOUT_DEVICE(no_object(EOPNOTSUPP), ibv_context*, ibv_import_device, (int command_fd), command_fd)

PACECAR_VERBS const char* ibv_get_sysfs_path() { return "/sys"; }

// Copies of kernel structures, which our devices do not have.
#define OF_KERNEL(name, parameters, ...) \
  PACECAR_VERBS void name parameters { CALL_REAL(name)(__VA_ARGS__); }

OF_KERNEL(ibv_copy_ah_attr_from_kern, (ibv_ah_attr* to, ib_uverbs_ah_attr* from), to, from)
OF_KERNEL(ibv_copy_qp_attr_from_kern, (ibv_qp_attr* to, ib_uverbs_qp_attr* from), to, from)
OF_KERNEL(ibv_copy_path_rec_from_kern, (ibv_sa_path_rec* to, ib_user_path_rec* from), to, from)
OF_KERNEL(ibv_copy_path_rec_to_kern, (ib_user_path_rec* to, ibv_sa_path_rec* from), to, from)

// Not supported: `own` is the result for an object of ours, the first argument.
#define UNSUPPORTED(own, type, name, parameters, ...) \
  PACECAR_VERBS type name parameters {                \
    FORWARD_UNLESS_OURS(name, __VA_ARGS__);           \
    return own;                                       \
  }

UNSUPPORTED(no_object(EOPNOTSUPP), ibv_pd*, ibv_import_pd, (ibv_context* context, uint32_t handle),
            context, handle)
UNSUPPORTED(, void, ibv_unimport_pd, (ibv_pd* pd), pd)
UNSUPPORTED(no_object(EOPNOTSUPP), ibv_mr*, ibv_import_mr, (ibv_pd* pd, uint32_t handle), pd,
            handle)
UNSUPPORTED(, void, ibv_unimport_mr, (ibv_mr* mr), mr)
UNSUPPORTED(no_object(EOPNOTSUPP), ibv_dm*, ibv_import_dm, (ibv_context* context, uint32_t handle),
            context, handle)
UNSUPPORTED(, void, ibv_unimport_dm, (ibv_dm* dm), dm)
UNSUPPORTED(no_object(EOPNOTSUPP), ibv_mr*, ibv_reg_dmabuf_mr,
            (ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access), pd,
            offset, length, iova, fd, access)
UNSUPPORTED(EOPNOTSUPP, int, ibv_set_ece, (ibv_qp* qp, ibv_ece* ece), qp, ece)
UNSUPPORTED(EOPNOTSUPP, int, ibv_query_ece, (ibv_qp* qp, ibv_ece* ece), qp, ece)
UNSUPPORTED(EOPNOTSUPP, int, ibv_attach_mcast, (ibv_qp* qp, const ibv_gid* gid, uint16_t lid), qp,
            gid, lid)
UNSUPPORTED(EOPNOTSUPP, int, ibv_detach_mcast, (ibv_qp* qp, const ibv_gid* gid, uint16_t lid), qp,
            gid, lid)

// clang-format on

PACECAR_VERBS int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length,
                               int access) {
  FORWARD_UNLESS_OURS(ibv_rereg_mr, mr, flags, pd, address, length, access);
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;
}

}  // extern "C"
}  // namespace pacecar::ibverbs
