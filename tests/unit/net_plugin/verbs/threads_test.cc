// Threads that share a device: one sleeps in ibv_get_cq_event, and drives the NIC, while another
// posts; or both create completion queues for one channel.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/own_verbs_device.h"
#include "transport/wire/roce.h"

namespace pacecar::test::threads_test {
namespace {

// Another address of this host, with a process's port: packets arrive, and nobody answers.
class SilentPeer {
 public:
  SilentPeer() {
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, kAddress + kMapped, &own.sin_addr);
    for (slot_ = roce::kSlots - 1; slot_ > 0; --slot_) {  // other processes may run this test
      own.sin_port = htons(roce::port_of_slot(slot_));
      if (bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0) break;
    }
  }
  ~SilentPeer() { close(fd_); }
  SilentPeer(const SilentPeer&) = delete;
  SilentPeer& operator=(const SilentPeer&) = delete;

  uint32_t queue_pair() const { return slot_ << roce::kSlotShift | 2; }
  static ibv_gid gid() {
    ibv_gid gid{};
    inet_pton(AF_INET6, kAddress, gid.raw);
    return gid;
  }
  // False: no packet came.
  bool receive() const {
    std::array<uint8_t, 2048> packet;
    return recv(fd_, packet.data(), packet.size(), 0) > 0;
  }

 private:
  static constexpr const char* kAddress = "::ffff:127.0.0.2";
  static constexpr size_t kMapped = sizeof "::ffff:" - 1;

  const int fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  uint32_t slot_ = 0;
};

class VerbsDeviceThreads : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_MW_BIND);
    channel_ = ibv_create_comp_channel(context_);
    cq_ = ibv_create_cq(context_, 16, nullptr, channel_, 0);
  }
  void TearDown() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp_), 0);
    }
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    EXPECT_EQ(ibv_dereg_mr(region_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }

  void connect() {
    ibv_qp_init_attr init{.send_cq = cq_, .recv_cq = cq_};
    init.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1};
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    qp_ = ibv_create_qp(pd_, &init);
    ASSERT_NE(qp_, nullptr);
    ibv_qp_attr attr{.qp_state = IBV_QPS_INIT};
    attr.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, mask), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer_.queue_pair();
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = SilentPeer::gid();
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, mask), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
           IBV_QP_MAX_QP_RD_ATOMIC;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, mask), 0);
  }
  void fail() {
    ibv_qp_attr attr{.qp_state = IBV_QPS_ERR};
    EXPECT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), 0);
  }
  int post(ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_, &wr, &bad);
  }
  // A thread that waits for a completion and is asleep already. `result`: of its call.
  std::thread sleeper(int result = 0) {
    EXPECT_EQ(ibv_req_notify_cq(cq_, 0), 0);
    std::atomic<pid_t> number = 0;
    std::thread sleeping([this, result, &number] {
      number = gettid();
      ibv_cq* cq = nullptr;
      void* unused = nullptr;
      EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &unused), result);
      if (result == 0) {
        ibv_ack_cq_events(cq_, 1);
      } else {
        EXPECT_EQ(errno, EINTR);
      }
    });
    while (number == 0) std::this_thread::yield();
    while (!asleep(number)) std::this_thread::yield();
    return sleeping;
  }
  static bool asleep(pid_t thread) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(status, text);
    return text.find(") S ") != std::string::npos;
  }

  const SilentPeer peer_;
  OwnVerbsDevice device_;
  ibv_context* const context_ = device_.context();
  std::array<uint8_t, 64> memory_{};
  ibv_pd* pd_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

TEST_F(VerbsDeviceThreads, PostedSendIsRetransmittedWhileAnotherThreadSleeps) {
  connect();
  std::thread sleeping = sleeper();
  EXPECT_EQ(post({.opcode = IBV_WR_SEND}), 0);
  EXPECT_TRUE(peer_.receive());
  EXPECT_TRUE(peer_.receive()) << "the send is retransmitted";
  fail();
  sleeping.join();
}

// Binding a window causes no packet that could wake the sleeper.
TEST_F(VerbsDeviceThreads, PostedBindWakesASleepingThread) {
  connect();
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  std::thread sleeping = sleeper();
  ibv_send_wr wr{.opcode = IBV_WR_BIND_MW};
  wr.bind_mw = {.mw = window, .rkey = window->rkey, .bind_info = {.mr = region_}};
  wr.bind_mw.bind_info.addr = reinterpret_cast<uint64_t>(memory_.data());
  wr.bind_mw.bind_info.length = memory_.size();
  wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
  EXPECT_EQ(post(wr), 0);
  sleeping.join();
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(VerbsDeviceThreads, ModeratedFlushCompletionWakesASleepingThread) {
  ibv_modify_cq_attr moderation{.attr_mask = IBV_CQ_ATTR_MODERATE,
                                .moderate = {.cq_count = 8, .cq_period = 1000}};
  ASSERT_EQ(ibv_modify_cq(cq_, &moderation), 0);
  connect();
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp_, &receive, &bad), 0);
  std::thread sleeping = sleeper();
  fail();
  sleeping.join();
}

TEST_F(VerbsDeviceThreads, ThreadsCreateAndDestroyQueuesOnOneChannel) {
  constexpr int kRounds = 1000;
  std::atomic<int> ready = 0;
  const auto make_and_end = [&] {
    std::array<ibv_cq*, 500> queues;
    for (int round = 1; round <= kRounds; ++round) {
      for (++ready; ready < 2 * round;) std::this_thread::yield();  // both begin at once
      for (ibv_cq*& queue : queues) queue = ibv_create_cq(context_, 1, nullptr, channel_, 0);
      for (ibv_cq* const queue : queues) ibv_destroy_cq(queue);
    }
  };
  std::thread other(make_and_end);
  make_and_end();
  other.join();
  EXPECT_EQ(channel_->refcnt, 1) << "only the fixture's queue is left";
}

TEST_F(VerbsDeviceThreads, SignalsEndAWaitAsTheyEndARead) {
  connect();
  for (const int flags : {0, SA_RESTART}) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, nullptr);
    std::thread sleeping = sleeper(flags == 0 ? -1 : 0);
    for (int i = 0; i < 3; ++i) {
      pthread_kill(sleeping.native_handle(), SIGUSR1);
      sched_yield();
    }
    if (flags != 0) {
      ASSERT_EQ(post({.opcode = IBV_WR_RDMA_WRITE}), 0);
      fail();
    }
    sleeping.join();
  }
  signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace pacecar::test::threads_test
