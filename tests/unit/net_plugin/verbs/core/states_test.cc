// The pure part of the verbs device: which changes of a queue pair's state are allowed.
#include "net_plugin/verbs/core/states.h"

#include <gtest/gtest.h>

namespace pacecar::ibverbs::states_test {
namespace {

constexpr int kRcInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRcReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRcSend = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

TEST(VerbsDeviceStates, ConnectionReachesRtsStepByStep) {
  EXPECT_TRUE(allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kRcInit));
  EXPECT_TRUE(allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRcReceive));
  EXPECT_TRUE(allowed(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRcSend));
  EXPECT_FALSE(allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, kRcReceive));
  EXPECT_FALSE(allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, kRcSend));
}

TEST(VerbsDeviceStates, EachStepTakesExactlyItsAttributes) {
  for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
    if (bit == IBV_QP_STATE) continue;
    if ((kRcReceive & bit) != 0) {
      EXPECT_FALSE(allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRcReceive & ~bit)) << bit;
    }
    if ((kRcSend & bit) != 0) {
      EXPECT_FALSE(allowed(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRcSend & ~bit)) << bit;
    }
  }
  EXPECT_FALSE(allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kRcInit | IBV_QP_QKEY));
  EXPECT_TRUE(allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRcReceive | IBV_QP_PKEY_INDEX));
}

TEST(VerbsDeviceStates, DatagramQueuePairNeedsAQueueKeyAndNoPeer) {
  EXPECT_TRUE(allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
  EXPECT_FALSE(allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kRcInit));
  EXPECT_TRUE(allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE));
  EXPECT_FALSE(allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, kRcReceive));
  EXPECT_TRUE(allowed(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

TEST(VerbsDeviceStates, ResetAndErrorAreAllowedFromEveryState) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from) {
      for (const ibv_qp_state to : {IBV_QPS_RESET, IBV_QPS_ERR}) {
        EXPECT_TRUE(allowed(type, static_cast<ibv_qp_state>(from), to, IBV_QP_STATE));
      }
    }
    EXPECT_FALSE(allowed(type, IBV_QPS_ERR, IBV_QPS_RTS, kRcSend));
    EXPECT_FALSE(allowed(type, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE));
  }
}

}  // namespace
}  // namespace pacecar::ibverbs::states_test
