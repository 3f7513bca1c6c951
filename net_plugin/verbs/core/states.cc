#include "net_plugin/verbs/core/states.h"

#include <span>

namespace pacecar::ibverbs {
namespace {

struct Row {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;  // of ibv_qp_attr_mask, without IBV_QP_STATE
  int optional;
};

constexpr int kPath = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS;
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr Row kConnected[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     kPath | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     kPath | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     kPath | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
};
// UC takes the attributes of RC but these.
constexpr int kReliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr Row kDatagram[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

}  // namespace

bool allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const int given = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (given & ~IBV_QP_CUR_STATE) == 0;
  const int known = type == IBV_QPT_UC ? ~kReliable : ~0;
  const std::span<const Row> rows = type == IBV_QPT_UD ? kDatagram : kConnected;
  for (const Row& row : rows) {
    if (row.from != from || row.to != to) continue;
    const int required = row.required & known;
    return (given & required) == required &&
           (given & ~((row.required | row.optional) & known)) == 0;
  }
  return false;
}

}  // namespace pacecar::ibverbs
