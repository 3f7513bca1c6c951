// What becomes of requests when their memory, their rights or their queue pair ends.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tests/support/verbs_pair.h"
#include "transport/base/fresh_pages.h"

namespace pacecar::test::pairs_test {
namespace {

constexpr unsigned kWritable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

class VerbsDevicePairs : public VerbsPair {
 protected:
  ibv_mr* register_memory(void* memory, size_t length) {
    return ibv_reg_mr(pd_, memory, length, static_cast<int>(kWritable | IBV_ACCESS_REMOTE_READ));
  }
  int send(size_t which, uint64_t id, uint32_t length, unsigned flags = 0) {
    ibv_sge from = piece(0, length);
    return post(
        which,
        {.wr_id = id, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags});
  }
};

// ibv_wr_post(3): nothing is executed unless all can be.
TEST_F(VerbsDevicePairs, BatchIsPostedWhollyOrNotAtAll) {
  attributes_.extended = true;
  connect();
  const auto post_batch = [&](uint32_t sends, uint32_t last_key) {
    ibv_qp_ex* const pair = ibv_qp_to_qp_ex(qps_[0]);
    ibv_wr_start(pair);
    for (uint32_t i = 0; i < sends; ++i) {
      pair->wr_id = i;
      ibv_wr_send(pair);
      ibv_wr_set_sge(pair, i + 1 < sends ? region_->lkey : last_key, address(0), 64);
    }
    return ibv_wr_complete(pair);
  };
  ibv_sge to = piece(64, 64);
  for (uint32_t i = 0; i < kSends; ++i) {
    ASSERT_EQ(post_receive(1, {.sg_list = &to, .num_sge = 1}), 0);
  }
  EXPECT_EQ(post_batch(kSends + 1, region_->lkey), ENOMEM);
  EXPECT_EQ(post_batch(kSends, ~region_->lkey), EINVAL);
  EXPECT_EQ(post_batch(kSends, region_->lkey), 0);
  for (uint32_t i = 0; i < kSends; ++i) {
    const ibv_wc sent = completion(0);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.wr_id, i);
  }
}

// --- shared receive requests ---

// Messages take long.
struct SlowLink {
  SlowLink() { setenv("PACECAR_RATE_MAX", "100M", 1); }
  ~SlowLink() { unsetenv("PACECAR_RATE_MAX"); }
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;
};

class VerbsDeviceSharedReceives : SlowLink, public VerbsDevicePairs {
 protected:
  static constexpr uint32_t kMost = 2;

  void SetUp() override {
    VerbsDevicePairs::SetUp();
    ibv_srq_init_attr attr{.srq_context = nullptr,
                           .attr = {.max_wr = kMost, .max_sge = 1, .srq_limit = 0}};
    attributes_.shared[1] = ibv_create_srq(pd_, &attr);
    target_ = register_memory(large_.data(), large_.size());
    source_ = register_memory(ones_.data(), ones_.size());
    connect();
  }
  ~VerbsDeviceSharedReceives() override {
    disconnect();
    for (ibv_mr* const region : {target_, source_}) EXPECT_EQ(ibv_dereg_mr(region), 0);
    EXPECT_EQ(ibv_destroy_srq(attributes_.shared[1]), 0);
  }
  int post_shared(uint64_t id) {
    ibv_sge to = of(target_);
    ibv_recv_wr wr{.wr_id = id, .sg_list = &to, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(attributes_.shared[1], &wr, &bad);
  }
  static ibv_sge of(const ibv_mr* region) {
    return {.addr = reinterpret_cast<uint64_t>(region->addr),
            .length = static_cast<uint32_t>(region->length),
            .lkey = region->lkey};
  }
  // The sender ends when a part of its message has arrived.
  void receive_a_part() {
    ASSERT_EQ(post_shared(5), 0);
    ibv_sge from = of(source_);
    ASSERT_EQ(post(0, {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}), 0);
    move_to(0, IBV_QPS_ERR);
    EXPECT_EQ(completion(0).status, IBV_WC_WR_FLUSH_ERR);
    const volatile uint8_t& first = large_[0];
    await([&] { return ibv_poll_cq(cqs_[1], 0, nullptr) != 0 || first == 1; });
  }

  std::vector<uint8_t> large_ = std::vector<uint8_t>(8 << 20);
  std::vector<uint8_t> ones_ = std::vector<uint8_t>(large_.size(), 1);
  ibv_mr* target_ = nullptr;
  ibv_mr* source_ = nullptr;
};

TEST_F(VerbsDeviceSharedReceives, TheOneOfAnUnfinishedMessageIsFlushedWithItsQueuePair) {
  receive_a_part();
  move_to(1, IBV_QPS_ERR);
  const ibv_wc flushed = completion(1);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 5U);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(device_.context(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED) << "and only then the event";
  ibv_ack_async_event(&event);
  for (uint32_t i = 0; i < kMost; ++i) EXPECT_EQ(post_shared(i), 0);
  EXPECT_EQ(post_shared(9), ENOMEM);
}

TEST_F(VerbsDeviceSharedReceives, TheOneOfAnUnfinishedMessageIsFreeAfterAReset) {
  receive_a_part();
  move_to(1, IBV_QPS_RESET);
  for (uint32_t i = 0; i < kMost; ++i) EXPECT_EQ(post_shared(i), 0);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(cqs_[1], 1, &wc), 0);
}

TEST_F(VerbsDeviceSharedReceives, TheOneOfAnUnfinishedUnreliableMessageIsFlushed) {
  attributes_.type = IBV_QPT_UC;
  reconnect();
  receive_a_part();
  move_to(1, IBV_QPS_ERR);
  EXPECT_EQ(completion(1).wr_id, 5U);
}

// --- several pieces ---

class VerbsDevicePieces : public VerbsDevicePairs {
 protected:
  void SetUp() override {
    VerbsDevicePairs::SetUp();
    attributes_.pieces = 2;
    attributes_.access |= IBV_ACCESS_REMOTE_ATOMIC;
    connect();
    other_ = register_memory(pages_.data(), kBytes);
  }
  // The second piece; its memory is gone afterwards.
  void lose_memory() {
    ASSERT_EQ(ibv_dereg_mr(other_), 0);
    ASSERT_EQ(munmap(pages_.data(), kBytes), 0);
  }
  std::array<ibv_sge, 2> pieces() {
    return {
        piece(0, 100),
        {.addr = reinterpret_cast<uint64_t>(pages_.data()), .length = 100, .lkey = other_->lkey}};
  }

  OwnPages<uint8_t> pages_{kBytes};
  ibv_mr* other_ = nullptr;
};

TEST_F(VerbsDevicePieces, AReceiveWhoseMemoryIsDeregisteredFails) {
  auto to = pieces();
  ASSERT_EQ(post_receive(1, {.wr_id = 5, .sg_list = to.data(), .num_sge = 2}), 0);
  ASSERT_EQ(post_receive(1, {.wr_id = 6}), 0);
  lose_memory();
  ASSERT_EQ(send(0, 1, 200), 0);
  const ibv_wc failed = completion(1);
  EXPECT_EQ(failed.wr_id, 5U);
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  const ibv_wc flushed = completion(1);
  EXPECT_EQ(flushed.wr_id, 6U);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(VerbsDevicePieces, AReceiveThatDoesNotNeedTheDeregisteredPieceSucceeds) {
  auto to = pieces();
  ASSERT_EQ(post_receive(1, {.wr_id = 5, .sg_list = to.data(), .num_sge = 2}), 0);
  lose_memory();
  ASSERT_EQ(send(0, 1, 100), 0);
  EXPECT_EQ(completion(1).status, IBV_WC_SUCCESS);
}

// The read waits behind a send until the peer has posted a receive request.
TEST_F(VerbsDevicePieces, AReadWhoseMemoryIsDeregisteredFails) {
  ibv_mr* const there = register_memory(memory_.data(), kBytes);
  ASSERT_EQ(send(0, 1, 10), 0);
  auto to = pieces();
  ibv_send_wr read{.wr_id = 2, .sg_list = to.data(), .num_sge = 2, .opcode = IBV_WR_RDMA_READ};
  read.wr.rdma = {.remote_addr = address(1000), .rkey = there->rkey};
  ASSERT_EQ(post(0, read), 0);
  ASSERT_EQ(send(0, 3, 10), 0);
  lose_memory();
  ibv_sge place = piece(2000, 10);
  ASSERT_EQ(post_receive(1, {.sg_list = &place, .num_sge = 1}), 0);
  EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS);
  const ibv_wc failed = completion(0);
  EXPECT_EQ(failed.wr_id, 2U);
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(completion(0).status, IBV_WC_WR_FLUSH_ERR);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

// --- attributes ---

TEST_F(VerbsDevicePairs, RightsMayBeWithdrawnFromAConnectedPeer) {
  connect();
  ibv_mr* const there = register_memory(memory_.data(), kBytes);
  EXPECT_EQ(write(there->rkey, address(1000)), IBV_WC_SUCCESS);
  ASSERT_EQ(modify(1, {.qp_access_flags = IBV_ACCESS_REMOTE_READ}, IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(transfer(IBV_WR_RDMA_READ, there->rkey, address(1000)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(there->rkey, address(1000)), IBV_WC_REM_INV_REQ_ERR);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

TEST_F(VerbsDevicePairs, RightsMayBeGrantedToAConnectedPeer) {
  attributes_.access = 0;
  connect();
  ibv_mr* const there = register_memory(memory_.data(), kBytes);
  ASSERT_EQ(modify(1, {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE}, IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(write(there->rkey, address(1000)), IBV_WC_SUCCESS);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

TEST_F(VerbsDevicePairs, AFailedConnectLeavesTheAttributesAsTheyWere) {
  make(0);
  ibv_qp_attr attr{.qp_state = IBV_QPS_INIT};
  attr.port_num = 1;
  ASSERT_EQ(modify(0, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 77};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid.raw[0] = 0xFE;  // the device has an IPv4 address
  attr.ah_attr.grh.dgid.raw[1] = 0x80;
  EXPECT_EQ(modify(0, attr,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            EINVAL);
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(qps_[0], &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(attr.dest_qp_num, 0U);
}

TEST_F(VerbsDevicePairs, ADatagramQueuePairMayChangeItsKey) {
  constexpr uint32_t kOld = 11;
  constexpr uint32_t kNew = 22;
  attributes_.type = IBV_QPT_UD;
  for (size_t i = 0; i < 2; ++i) {
    make(i);
    ibv_qp_attr attr{.qp_state = IBV_QPS_INIT, .qkey = kOld};
    attr.port_num = 1;
    ASSERT_EQ(modify(i, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    move_to(i, IBV_QPS_RTR);
    ASSERT_EQ(modify(i, {.qp_state = IBV_QPS_RTS}, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  ASSERT_EQ(modify(1, {.qkey = kNew}, IBV_QP_QKEY), 0);
  ibv_ah_attr path{.is_global = 1, .port_num = 1};
  ASSERT_EQ(ibv_query_gid(device_.context(), 1, 0, &path.grh.dgid), 0);
  ibv_ah* const handle = ibv_create_ah(pd_, &path);
  ibv_sge to = piece(0, 100);
  ASSERT_EQ(post_receive(1, {.sg_list = &to, .num_sge = 1}), 0);
  for (const uint32_t key : {kOld, kNew}) {
    ibv_sge from = piece(1000, key);  // so the lengths tell which one has arrived
    ibv_send_wr wr{.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
    wr.wr.ud = {.ah = handle, .remote_qpn = qps_[1]->qp_num, .remote_qkey = key};
    ASSERT_EQ(post(0, wr), 0);
    EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(completion(1).byte_len, 40 + kNew);
  disconnect();
  EXPECT_EQ(ibv_destroy_ah(handle), 0);
}

TEST_F(VerbsDevicePairs, AttributesThatDoNotFitTheirFieldsAreRefused) {
  make(0);
  make(1);
  bring_up(1);
  ibv_qp_attr attr{.qp_state = IBV_QPS_RTS};
  EXPECT_EQ(modify(1, {.min_rnr_timer = 32}, IBV_QP_MIN_RNR_TIMER), EINVAL);
  ibv_qp* const up = std::exchange(qps_[1], nullptr);
  EXPECT_EQ(ibv_destroy_qp(up), 0);
  EXPECT_EQ(ibv_destroy_cq(std::exchange(cqs_[1], nullptr)), 0);
  attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(modify(0, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
  attr.ah_attr.is_global = 1;
  ASSERT_EQ(ibv_query_gid(device_.context(), 1, 0, &attr.ah_attr.grh.dgid), 0);
  ASSERT_EQ(modify(0, attr,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  const auto sends = [&](uint8_t timeout, uint8_t retries, uint8_t not_ready_retries) {
    return modify(0,
                  {.qp_state = IBV_QPS_RTS,
                   .timeout = timeout,
                   .retry_cnt = retries,
                   .rnr_retry = not_ready_retries},
                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  };
  EXPECT_EQ(sends(52, 7, 7), EINVAL);
  EXPECT_EQ(sends(31, 8, 7), EINVAL);
  EXPECT_EQ(sends(31, 7, 8), EINVAL);
  EXPECT_EQ(sends(31, 7, 7), 0);
}

// --- which request fails ---

// The peer says how long to wait: 0.66 s. Our own timer is of other requests.
TEST_F(VerbsDevicePairs, APeerThatIsNotReadyIsTriedAgain) {
  attributes_.rnr_retry = 1;
  attributes_.rnr_timer = {1, 0};
  connect();
  ASSERT_EQ(send(0, 1, 10), 0);
  drive(std::chrono::milliseconds(100));
  ibv_sge to = piece(100, 10);
  ASSERT_EQ(post_receive(1, {.sg_list = &to, .num_sge = 1}), 0);
  EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion(1).status, IBV_WC_SUCCESS);
}

TEST_F(VerbsDevicePairs, ExecutedRequestsWithoutCompletionsDoNotFail) {
  attributes_.all_signaled = false;
  attributes_.rnr_retry = 0;
  attributes_.rnr_timer = {1, 1};
  connect();
  ibv_mr* const there = register_memory(memory_.data(), kBytes);
  memory_[0] = 77;
  ibv_sge from = piece(0, 1);
  ibv_send_wr write{.wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  write.wr.rdma = {.remote_addr = address(100), .rkey = there->rkey};
  ASSERT_EQ(post(0, write), 0);
  ASSERT_EQ(send(0, 2, 10), 0);  // the peer has no receive request
  ASSERT_EQ(send(0, 3, 10), 0);
  const ibv_wc failed = completion(0);
  EXPECT_EQ(failed.wr_id, 2U);
  EXPECT_EQ(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(completion(0).wr_id, 3U);
  EXPECT_EQ(memory_[100], 77);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

TEST_F(VerbsDevicePairs, ExecutedRequestsWithoutCompletionsAreNotFlushed) {
  attributes_.all_signaled = false;
  connect();
  ibv_mr* const there = register_memory(memory_.data(), kBytes);
  memory_[0] = 77;
  ibv_sge from = piece(0, 1);
  ibv_send_wr write{.wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  write.wr.rdma = {.remote_addr = address(100), .rkey = there->rkey};
  ASSERT_EQ(post(0, write), 0);
  ASSERT_EQ(send(0, 2, 10), 0);  // waits for the peer's receive request
  drive(std::chrono::milliseconds(50));
  move_to(0, IBV_QPS_ERR);
  const ibv_wc flushed = completion(0);
  EXPECT_EQ(flushed.wr_id, 2U);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(cqs_[0], 1, &wc), 0);
  EXPECT_EQ(memory_[100], 77);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

// --- forked children ---

// The keeper may hold the NIC's lock at the moment of the fork.
TEST_F(VerbsDevicePairs, ForkedChildTouchesNothingAndMayOpenADeviceOfItsOwn) {
  connect();
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      EXPECT_EQ(send(0, 1, 64), EPERM);
      EXPECT_LT(ibv_poll_cq(cqs_[0], 0, nullptr), 0);
      EXPECT_EQ(ibv_create_cq(device_.context(), 1, nullptr, nullptr, 0), nullptr);
      EXPECT_EQ(errno, EPERM);
      EXPECT_NE(ibv_req_notify_cq(cqs_[0], 0), 0);
      for (ibv_qp* const qp : qps_) EXPECT_EQ(ibv_destroy_qp(qp), 0);
      EXPECT_EQ(ibv_dereg_mr(region_), 0);
      ibv_context* const own = ibv_open_device(device_.context()->device);
      EXPECT_NE(own, nullptr);
      if (own != nullptr) {
        ibv_pd* const pd = ibv_alloc_pd(own);
        ibv_mr* const region = ibv_reg_mr(pd, memory_.data(), kBytes, IBV_ACCESS_LOCAL_WRITE);
        EXPECT_NE(region, nullptr);
        EXPECT_EQ(ibv_dereg_mr(region), 0);
      }
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ibv_sge to = piece(64, 64);
    ASSERT_EQ(post_receive(1, {.wr_id = 2, .sg_list = &to, .num_sge = 1}), 0);
    ASSERT_EQ(send(0, 3, 64, IBV_SEND_SIGNALED), 0);
    EXPECT_EQ(completion(1).status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS);
  }
}

}  // namespace
}  // namespace pacecar::test::pairs_test
