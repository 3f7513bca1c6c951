// Functions of libibverbs that concern no device, or objects that are never ours. The real library
// executes them if there is one. They are here so that this library can replace libibverbs.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/objects.h"

using namespace pacecar;  // NOLINT: the C interface lies in no namespace
using namespace pacecar::ibverbs;

struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ib_user_path_rec;
struct ibv_sa_path_rec;

namespace {

// Rates by their codes, in multiples of 2.5 Gb/s and in Mb/s.
struct RateRow {
  ibv_rate rate;
  int multiple;
  int mbps;
};
constexpr RateRow kUnknown{IBV_RATE_MAX, -1, -1};
constexpr RateRow kRates[] = {{IBV_RATE_2_5_GBPS, 1, 2500},      {IBV_RATE_5_GBPS, 2, 5000},
                              {IBV_RATE_10_GBPS, 4, 10000},      {IBV_RATE_20_GBPS, 8, 20000},
                              {IBV_RATE_30_GBPS, 12, 30000},     {IBV_RATE_40_GBPS, 16, 40000},
                              {IBV_RATE_60_GBPS, 24, 60000},     {IBV_RATE_80_GBPS, 32, 80000},
                              {IBV_RATE_120_GBPS, 48, 120000},   {IBV_RATE_14_GBPS, -1, 14062},
                              {IBV_RATE_56_GBPS, -1, 56250},     {IBV_RATE_112_GBPS, -1, 112500},
                              {IBV_RATE_168_GBPS, -1, 168750},   {IBV_RATE_25_GBPS, -1, 25781},
                              {IBV_RATE_100_GBPS, -1, 103125},   {IBV_RATE_200_GBPS, -1, 206250},
                              {IBV_RATE_300_GBPS, -1, 309375},   {IBV_RATE_28_GBPS, 11, 28125},
                              {IBV_RATE_50_GBPS, 20, 53125},     {IBV_RATE_400_GBPS, 160, 425000},
                              {IBV_RATE_600_GBPS, 240, 637500},  {IBV_RATE_800_GBPS, 320, 850000},
                              {IBV_RATE_1200_GBPS, 480, 1275000}};

// The row with this value in a column.
template <typename Value>
const RateRow& row_of(Value RateRow::*column, Value value) {
  const auto* const found = std::ranges::find(kRates, value, column);
  return found == std::end(kRates) ? kUnknown : *found;
}

}  // namespace

extern "C" {

PACECAR_VERBS const char* ibv_node_type_str(ibv_node_type type) {
  return have_real()           ? CALL_REAL(ibv_node_type_str)(type)
         : type == IBV_NODE_CA ? "InfiniBand channel adapter"
                               : "unknown";
}

PACECAR_VERBS const char* ibv_port_state_str(ibv_port_state state) {
  return have_real()                ? CALL_REAL(ibv_port_state_str)(state)
         : state == IBV_PORT_ACTIVE ? "active"
                                    : "down";
}

PACECAR_VERBS const char* ibv_event_type_str(ibv_event_type event) {
  return have_real() ? CALL_REAL(ibv_event_type_str)(event) : "asynchronous event";
}

PACECAR_VERBS const char* ibv_wc_status_str(ibv_wc_status status) {
  return have_real()                ? CALL_REAL(ibv_wc_status_str)(status)
         : status == IBV_WC_SUCCESS ? "success"
                                    : "work completion error";
}

PACECAR_VERBS int ibv_rate_to_mult(ibv_rate rate) { return row_of(&RateRow::rate, rate).multiple; }

PACECAR_VERBS ibv_rate mult_to_ibv_rate(int multiple) {
  return multiple > 0 ? row_of(&RateRow::multiple, multiple).rate : IBV_RATE_MAX;
}

PACECAR_VERBS int ibv_rate_to_mbps(ibv_rate rate) { return row_of(&RateRow::rate, rate).mbps; }

PACECAR_VERBS ibv_rate mbps_to_ibv_rate(int mbps) { return row_of(&RateRow::mbps, mbps).rate; }

// Our regions are ordinary memory, which a child process copies.
PACECAR_VERBS int ibv_fork_init() { return have_real() ? CALL_REAL(ibv_fork_init)() : 0; }

PACECAR_VERBS ibv_fork_status ibv_is_fork_initialized() {
  return have_real() ? CALL_REAL(ibv_is_fork_initialized)() : IBV_FORK_UNNEEDED;
}

PACECAR_VERBS const char* ibv_get_sysfs_path() { return "/sys"; }

// Reads a file, without a final newline.
PACECAR_VERBS int ibv_read_sysfs_file(const char* folder, const char* file, char* line,
                                      size_t size) {
  char path[512];
  if (std::snprintf(path, sizeof path, "%s/%s", folder, file) >= static_cast<int>(sizeof path)) {
    return -1;
  }
  std::FILE* const opened = std::fopen(path, "re");
  if (opened == nullptr) return -1;
  size_t length = std::fread(line, 1, size, opened);
  std::fclose(opened);
  if (length > 0 && line[length - 1] == '\n') line[--length] = '\0';
  if (length < size) line[length] = '\0';
  return static_cast<int>(length);
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
  return have_real() ? CALL_REAL(ibv_import_device)(command_fd) : no_object(EOPNOTSUPP);
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
