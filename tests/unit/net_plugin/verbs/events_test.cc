// Asynchronous events and their objects, as in ibv_get_async_event(3): destroying an object waits
// until its events are acknowledged, and removes its unread events.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/support/descriptor_limit.h"
#include "tests/support/own_verbs_device.h"

namespace pacecar::test::events_test {
namespace {

class VerbsDeviceEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(context, nullptr);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    ibv_srq_init_attr shared{.srq_context = nullptr,
                             .attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0}};
    srq = ibv_create_srq(pd, &shared);
    ASSERT_NE(srq, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  }

  // A queue pair in the state INIT, which has its own receive queue unless `shared` is given.
  ibv_qp* make_queue_pair(ibv_cq* completions, ibv_srq* shared) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = completions;
    init.srq = shared;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* const qp = ibv_create_qp(pd, &init);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    return qp;
  }
  // A queue pair in error, with its event IBV_EVENT_QP_LAST_WQE_REACHED.
  ibv_qp* make_failed_queue_pair() {
    ibv_qp* const qp = make_queue_pair(cq, srq);
    fail(qp);
    return qp;
  }
  static void fail(ibv_qp* qp) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  }
  bool has_event() {
    pollfd waiting{context->async_fd, POLLIN, 0};
    return poll(&waiting, 1, 0) == 1;
  }

  OwnVerbsDevice device;
  ibv_context* const context = device.context();
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
};

TEST_F(VerbsDeviceEvents, ChannelWithoutDescriptorsSaysSo) {
  const DescriptorLimit none;
  EXPECT_EQ(ibv_create_comp_channel(context), nullptr);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(rdma_create_event_channel(), nullptr);
  EXPECT_EQ(errno, EMFILE);
}

TEST_F(VerbsDeviceEvents, UnreadEventsEndWithTheirQueuePair) {
  ibv_qp* const ended = make_failed_queue_pair();
  ibv_qp* const other = make_failed_queue_pair();
  ASSERT_TRUE(has_event());
  ASSERT_EQ(ibv_destroy_qp(ended), 0);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.element.qp, other);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_FALSE(has_event());
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_qp(other), 0);
}

TEST_F(VerbsDeviceEvents, UnreadEventsEndWithTheirCompletionQueue) {
  ibv_cq* const small = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  ibv_qp* const qp = make_queue_pair(small, nullptr);
  for (int i = 0; i < 4; ++i) {
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
  }
  fail(qp);
  ASSERT_TRUE(has_event()) << "the completion queue is overrun";
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_TRUE(has_event());
  EXPECT_EQ(ibv_destroy_cq(small), 0);
  EXPECT_FALSE(has_event());
}

// As above, and while the call waits for the acknowledgement of an event of the channel.
TEST_F(VerbsDeviceEvents, UnreadEventsEndBeforeDestroyWaitsForOthers) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  ibv_cq* const small = ibv_create_cq(context, 1, nullptr, channel, 0);
  ASSERT_EQ(ibv_req_notify_cq(small, 0), 0);
  ibv_qp* const qp = make_queue_pair(small, nullptr);
  for (int i = 0; i < 2; ++i) {
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
  }
  fail(qp);
  ASSERT_TRUE(has_event()) << "the completion queue is overrun";
  ibv_cq* of = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &of, &user), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  std::atomic<bool> ended = false;
  std::thread ending([&] {
    EXPECT_EQ(ibv_destroy_cq(small), 0);
    ended = true;
  });
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (has_event() && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  EXPECT_FALSE(has_event());
  EXPECT_FALSE(ended);
  ibv_ack_cq_events(small, 1);
  ending.join();
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsDeviceEvents, DestroyWaitsUntilEventsAreAcknowledged) {
  ibv_qp* const qp = make_failed_queue_pair();
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  std::atomic<bool> ended = false;
  std::thread ending([&] {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    ended = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(ended);
  ibv_ack_async_event(&event);
  ending.join();
}

// More events than a pipe of the kernel holds.
TEST_F(VerbsDeviceEvents, NoEventIsLostHoweverManyAreUnread) {
  constexpr int kUnread = 10000;
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  ibv_cq* const busy = ibv_create_cq(context, 1, nullptr, channel, 0);
  ibv_cq* const last = ibv_create_cq(context, 1, nullptr, channel, 0);
  std::array<ibv_qp*, 2> qps{make_queue_pair(busy, nullptr), make_queue_pair(last, nullptr)};
  for (ibv_qp* const qp : qps) fail(qp);
  // A receive request is flushed at once.
  const auto complete = [](ibv_qp* qp, ibv_cq* completions) {
    ASSERT_EQ(ibv_req_notify_cq(completions, 0), 0);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
    ibv_wc wc;
    ASSERT_EQ(ibv_poll_cq(completions, 1, &wc), 1);
  };
  for (int i = 0; i < kUnread; ++i) complete(qps[0], busy);
  complete(qps[1], last);
  fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  ibv_cq* of = nullptr;
  void* user = nullptr;
  int events = 0;
  while (ibv_get_cq_event(channel, &of, &user) == 0) ++events;
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(events, kUnread + 1);
  EXPECT_EQ(of, last);
  pollfd readable{channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  ibv_ack_cq_events(busy, kUnread);
  ibv_ack_cq_events(last, 1);
  for (ibv_qp* const qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  for (ibv_cq* const each : {busy, last}) EXPECT_EQ(ibv_destroy_cq(each), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

}  // namespace
}  // namespace pacecar::test::events_test
