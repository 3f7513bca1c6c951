// Functions of libibverbs that concern no device, or objects that are never ours. The real library
// executes them if there is one. They are here so that this library can replace libibverbs.
#include <infiniband/verbs.h>

#include <cerrno>

#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/objects.h"

struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ib_user_path_rec;
struct ibv_sa_path_rec;

// The result of the real function; without a real library, `own`.
#define REAL_OR(own, name, ...) (have_real() ? CALL_REAL(name)(__VA_ARGS__) : (own))

namespace pacecar::ibverbs {
extern "C" {

PACECAR_VERBS const char* ibv_node_type_str(ibv_node_type type) {
  const char* const own = type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
  return REAL_OR(own, ibv_node_type_str, type);
}

PACECAR_VERBS const char* ibv_port_state_str(ibv_port_state state) {
  return REAL_OR(state == IBV_PORT_ACTIVE ? "active" : "down", ibv_port_state_str, state);
}

PACECAR_VERBS const char* ibv_event_type_str(ibv_event_type event) {
  return REAL_OR("asynchronous event", ibv_event_type_str, event);
}

PACECAR_VERBS const char* ibv_wc_status_str(ibv_wc_status status) {
  const char* const own = status == IBV_WC_SUCCESS ? "success" : "work completion error";
  return REAL_OR(own, ibv_wc_status_str, status);
}

// Rates by their codes, for address handles: our devices ignore them.
PACECAR_VERBS int ibv_rate_to_mult(ibv_rate rate) { return REAL_OR(-1, ibv_rate_to_mult, rate); }

PACECAR_VERBS ibv_rate mult_to_ibv_rate(int multiple) {
  return REAL_OR(IBV_RATE_MAX, mult_to_ibv_rate, multiple);
}

PACECAR_VERBS int ibv_rate_to_mbps(ibv_rate rate) { return REAL_OR(-1, ibv_rate_to_mbps, rate); }

PACECAR_VERBS ibv_rate mbps_to_ibv_rate(int mbps) {
  return REAL_OR(IBV_RATE_MAX, mbps_to_ibv_rate, mbps);
}

// Our regions are ordinary memory, which a child process copies.
PACECAR_VERBS int ibv_fork_init() { return REAL_OR(0, ibv_fork_init); }

PACECAR_VERBS ibv_fork_status ibv_is_fork_initialized() {
  return REAL_OR(IBV_FORK_UNNEEDED, ibv_is_fork_initialized);
}

PACECAR_VERBS const char* ibv_get_sysfs_path() { return "/sys"; }

PACECAR_VERBS int ibv_read_sysfs_file(const char* folder, const char* file, char* line,
                                      size_t size) {
  return REAL_OR(-1, ibv_read_sysfs_file, folder, file, line, size);
}

PACECAR_VERBS void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  CALL_REAL(ibv_copy_ah_attr_from_kern)(to, from);
}

PACECAR_VERBS void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  CALL_REAL(ibv_copy_qp_attr_from_kern)(to, from);
}

PACECAR_VERBS void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  CALL_REAL(ibv_copy_path_rec_from_kern)(to, from);
}

PACECAR_VERBS void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  CALL_REAL(ibv_copy_path_rec_to_kern)(to, from);
}

PACECAR_VERBS ibv_context* ibv_import_device(int command_fd) {
  return REAL_OR(no_object(EOPNOTSUPP), ibv_import_device, command_fd);
}

PACECAR_VERBS ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  return ours(context) ? no_object(EOPNOTSUPP) : CALL_REAL(ibv_import_pd)(context, handle);
}

PACECAR_VERBS void ibv_unimport_pd(ibv_pd* pd) {
  if (!ours(pd)) CALL_REAL(ibv_unimport_pd)(pd);
}

PACECAR_VERBS ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  return ours(pd) ? no_object(EOPNOTSUPP) : CALL_REAL(ibv_import_mr)(pd, handle);
}

PACECAR_VERBS void ibv_unimport_mr(ibv_mr* mr) {
  if (!ours(mr)) CALL_REAL(ibv_unimport_mr)(mr);
}

PACECAR_VERBS ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  return ours(context) ? no_object(EOPNOTSUPP) : CALL_REAL(ibv_import_dm)(context, handle);
}

PACECAR_VERBS void ibv_unimport_dm(ibv_dm* dm) {
  if (!ours(dm)) CALL_REAL(ibv_unimport_dm)(dm);
}

}  // extern "C"
}  // namespace pacecar::ibverbs
