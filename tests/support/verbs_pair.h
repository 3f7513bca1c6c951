// Two queue pairs of the verbs device, connected with each other, as a program uses them. Patient:
// what does not come within 30 s fails the test.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/own_verbs_device.h"

namespace pacecar::test {

class VerbsPair : public testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;
  static constexpr uint32_t kSends = 8;
  // Attributes of both queue pairs, unless a test changes them before connect().
  struct Attributes {
    ibv_qp_type type = IBV_QPT_RC;
    bool all_signaled = true;
    bool extended = false;  // for ibv_wr_*
    uint32_t pieces = 1;
    uint8_t rnr_retry = 7;
    std::array<uint8_t, 2> rnr_timer{};
    std::array<ibv_srq*, 2> shared{};
    // At INIT and RTR.
    unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  };

  void SetUp() override {
    ASSERT_NE(device_.context(), nullptr);
    pd_ = ibv_alloc_pd(device_.context());
    region_ = ibv_reg_mr(pd_, memory_.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  }
  ~VerbsPair() override {
    disconnect();
    if (region_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(region_), 0);
    }
    if (pd_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    }
  }

  void connect() {
    for (size_t i = 0; i < 2; ++i) make(i);
    for (size_t i = 0; i < 2; ++i) bring_up(i);
  }
  void make(size_t which) {
    cqs_[which] = ibv_create_cq(device_.context(), 32, nullptr, nullptr, 0);
    ibv_qp_init_attr attr{.send_cq = cqs_[which], .recv_cq = cqs_[which]};
    attr.srq = attributes_.shared[which];
    attr.cap = {.max_send_wr = kSends,
                .max_recv_wr = 8,
                .max_send_sge = attributes_.pieces,
                .max_recv_sge = attributes_.pieces};
    attr.qp_type = attributes_.type;
    attr.sq_sig_all = attributes_.all_signaled ? 1 : 0;
    ibv_qp_init_attr_ex extended{
        .send_cq = attr.send_cq, .recv_cq = attr.recv_cq, .srq = attr.srq, .cap = attr.cap};
    extended.qp_type = attr.qp_type;
    extended.sq_sig_all = attr.sq_sig_all;
    extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    extended.pd = pd_;
    extended.send_ops_flags = IBV_QP_EX_WITH_SEND;
    qps_[which] = attributes_.extended ? ibv_create_qp_ex(device_.context(), &extended)
                                       : ibv_create_qp(pd_, &attr);
    ASSERT_NE(qps_[which], nullptr);
  }
  void bring_up(size_t which) {
    ibv_qp_attr attr{.qp_state = IBV_QPS_INIT};
    attr.qp_access_flags = attributes_.access;
    attr.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    ASSERT_EQ(modify(which, attr, mask), 0);
    const bool reliable = attributes_.type == IBV_QPT_RC;
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qps_[1 - which]->qp_num;
    attr.min_rnr_timer = attributes_.rnr_timer[which];
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    ASSERT_EQ(ibv_query_gid(device_.context(), 1, 0, &attr.ah_attr.grh.dgid), 0);
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(modify(which, attr, mask), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 18;
    attr.retry_cnt = 7;
    attr.rnr_retry = attributes_.rnr_retry;
    attr.max_rd_atomic = 1;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (reliable) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    ASSERT_EQ(modify(which, attr, mask), 0);
  }
  void disconnect() {
    for (ibv_qp*& qp : qps_) {
      if (qp != nullptr) {
        EXPECT_EQ(ibv_destroy_qp(std::exchange(qp, nullptr)), 0);
      }
    }
    for (ibv_cq*& cq : cqs_) {
      if (cq != nullptr) {
        EXPECT_EQ(ibv_destroy_cq(std::exchange(cq, nullptr)), 0);
      }
    }
  }
  void reconnect() {
    disconnect();
    connect();
  }

  int modify(size_t which, ibv_qp_attr attr, int mask) {
    return ibv_modify_qp(qps_[which], &attr, mask);
  }
  void move_to(size_t which, ibv_qp_state state) {
    EXPECT_EQ(modify(which, {.qp_state = state}, IBV_QP_STATE), 0);
  }
  void drive(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    await([&] {
      ibv_poll_cq(cqs_[0], 0, nullptr);
      return std::chrono::steady_clock::now() > until;
    });
  }
  void await(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) ASSERT_LT(std::chrono::steady_clock::now(), until);
  }
  ibv_wc completion(size_t which) {
    ibv_wc wc{};
    await([&] { return ibv_poll_cq(cqs_[which], 1, &wc) != 0; });
    return wc;
  }
  int post(size_t which, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qps_[which], &wr, &bad);
  }
  int post_receive(size_t which, ibv_recv_wr wr) {
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qps_[which], &wr, &bad);
  }
  uint64_t address(size_t offset) const {
    return reinterpret_cast<uint64_t>(memory_.data() + offset);
  }
  ibv_sge piece(size_t offset, uint32_t length) const {
    return {.addr = address(offset), .length = length, .lkey = region_->lkey};
  }
  // Transfers 64 bytes between the start of the memory and `remote`, on queue pair 0.
  ibv_wc_status transfer(ibv_wr_opcode opcode, uint32_t key, uint64_t remote) {
    ibv_sge from = piece(0, 64);
    ibv_send_wr wr{.sg_list = &from, .num_sge = 1, .opcode = opcode};
    wr.wr.rdma = {.remote_addr = remote, .rkey = key};
    EXPECT_EQ(post(0, wr), 0);
    return completion(0).status;
  }
  ibv_wc_status write(uint32_t key, uint64_t to) { return transfer(IBV_WR_RDMA_WRITE, key, to); }

  OwnVerbsDevice device_;
  Attributes attributes_;
  ibv_pd* pd_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kBytes, 1);
  std::array<ibv_cq*, 2> cqs_{};
  std::array<ibv_qp*, 2> qps_{};
};

}  // namespace pacecar::test
