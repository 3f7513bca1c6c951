#include "net_plugin/verbs/core/states.h"

#include <array>

namespace pacecar::ibverbs {
namespace {

struct Row {
  ibv_qp_type type;
  ibv_qp_state from;
  ibv_qp_state to;
  Transition attributes;
};

constexpr std::array kRows = {
    Row{IBV_QPT_RC,
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0}},
    Row{IBV_QPT_RC,
        IBV_QPS_INIT,
        IBV_QPS_INIT,
        {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    Row{IBV_QPT_RC,
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        {IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    Row{IBV_QPT_RC,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        {IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
             IBV_QP_PATH_MIG_STATE}},
    Row{IBV_QPT_RC,
        IBV_QPS_RTS,
        IBV_QPS_RTS,
        {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
                IBV_QP_MIN_RNR_TIMER}},
    Row{IBV_QPT_UC,
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0}},
    Row{IBV_QPT_UC,
        IBV_QPS_INIT,
        IBV_QPS_INIT,
        {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    Row{IBV_QPT_UC,
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        {IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
         IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    Row{IBV_QPT_UC,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        {IBV_QP_SQ_PSN,
         IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE}},
    Row{IBV_QPT_UC,
        IBV_QPS_RTS,
        IBV_QPS_RTS,
        {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE}},
    Row{IBV_QPT_UD,
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0}},
    Row{IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY}},
    Row{IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    Row{IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
    Row{IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, {0, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
};

}  // namespace

std::optional<Transition> transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return Transition{0, IBV_QP_CUR_STATE};
  for (const Row& row : kRows) {
    if (row.type == type && row.from == from && row.to == to) return row.attributes;
  }
  return std::nullopt;
}

bool allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const auto attributes = transition(type, from, to);
  if (!attributes) return false;
  const int given = mask & ~IBV_QP_STATE;
  return (given & attributes->required) == attributes->required &&
         (given & ~(attributes->required | attributes->optional)) == 0;
}

}  // namespace pacecar::ibverbs
