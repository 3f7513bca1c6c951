// Connections of librdmacm over the device, of which one end's process or network is lost.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/lost_peer.h"

namespace pacecar::test::lost_ids_test {
namespace {

// Rank 0 accepts, and rank 1 connects. A listener that nobody calls waits for ever, as on hardware.
enum class Stage { kCalls, kIsConnected, kTransfers, kCloses };
constexpr Stage kStages[] = {Stage::kCalls, Stage::kIsConnected, Stage::kTransfers, Stage::kCloses};
constexpr size_t kBytes = 1 << 20;

class End {
 public:
  explicit End(Rank& rank) : rank_(rank), received_(kBytes), sent_(kBytes, 1) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    HandleBytes port{};
    if (rank.rank() == 1) {
      port = rank.take(0);
      std::memcpy(&address.sin_port, port.data(), sizeof address.sin_port);
    }
    EXPECT_EQ(rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP), 0);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    if (rank.rank() == 1) {
      EXPECT_EQ(rdma_resolve_addr(id_, nullptr, raw, 1000), 0);
      EXPECT_EQ(rdma_resolve_route(id_, 1000), 0);
      make_queue_pair();
      return;
    }
    EXPECT_EQ(rdma_bind_addr(id_, raw), 0);
    EXPECT_EQ(rdma_listen(id_, 8), 0);
    const uint16_t own = rdma_get_src_port(id_);
    std::memcpy(port.data(), &own, sizeof own);
    rank.give(1, port);
  }

  bool connect() {
    rdma_conn_param param{};
    param.responder_resources = param.initiator_depth = 4;
    param.retry_count = param.rnr_retry_count = 7;
    return (rank_.rank() == 1 ? rdma_connect(id_, &param) : rdma_accept(id_, &param)) == 0;
  }
  void take_call() {
    rdma_cm_id* const listener = id_;
    ASSERT_EQ(rdma_get_request(listener, &id_), 0);
    make_queue_pair();
  }
  void post() {
    EXPECT_EQ(rdma_post_recv(id_, nullptr, received_.data(), kBytes, receives_), 0);
    EXPECT_EQ(rdma_post_send(id_, nullptr, sent_.data(), kBytes, sends_, 0), 0);
  }
  void post_receive() {
    EXPECT_EQ(rdma_post_recv(id_, nullptr, received_.data(), kBytes, receives_), 0);
  }
  ibv_wc_status sent() { return status_of(rdma_get_send_comp); }
  ibv_wc_status received() { return status_of(rdma_get_recv_comp); }
  // A program that reads its events disconnects, and that flushes its work requests.
  void await_disconnect() {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(id_->channel, &event), 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
    rdma_ack_cm_event(event);
    rdma_disconnect(id_);
  }
  void close() {
    rdma_disconnect(id_);
    rdma_destroy_ep(id_);
  }

 private:
  void make_queue_pair() {
    ibv_qp_init_attr attr{};
    attr.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    ASSERT_EQ(rdma_create_qp(id_, nullptr, &attr), 0);
    receives_ = rdma_reg_msgs(id_, received_.data(), kBytes);
    sends_ = rdma_reg_msgs(id_, sent_.data(), kBytes);
  }
  ibv_wc_status status_of(int (*await)(rdma_cm_id*, ibv_wc*)) {
    ibv_wc completion{};
    EXPECT_EQ(await(id_, &completion), 1);
    return completion.status;
  }

  Rank& rank_;
  rdma_cm_id* id_ = nullptr;
  ibv_mr* receives_ = nullptr;
  ibv_mr* sends_ = nullptr;
  std::vector<uint8_t> received_;
  std::vector<uint8_t> sent_;
};

// The caller is lost while it waits for the answer, the listener before it is called.
void lose_while_connecting(Rank& rank, Loss& loss, End& end, int victim) {
  const bool calls = rank.rank() == 1;
  if (victim == 0) {
    loss.happens();
    if (calls) {
      EXPECT_FALSE(end.connect());
    }
  } else if (calls) {
    std::thread other([&] {
      rank.meet(0);
      loss.happens();
    });
    EXPECT_FALSE(end.connect());
    other.join();
  } else {
    end.take_call();
    rank.meet(1);
    loss.happens();
    EXPECT_FALSE(end.connect());
  }
  loss.is_noticed();
}

void lose_at(Rank& rank, Loss& loss, Stage stage, int victim) {
  setenv("PACECAR_NICS", "soft:udp:lo", 1);
  End end(rank);
  rank.barrier();
  if (stage == Stage::kCalls) return lose_while_connecting(rank, loss, end, victim);
  if (rank.rank() == 0) end.take_call();
  EXPECT_TRUE(end.connect());
  if (stage == Stage::kIsConnected) {
    end.post_receive();
    // The end that connected notices nothing before it knows that its peer answers probes.
    std::this_thread::sleep_for(std::chrono::seconds(8));
  } else {
    for (int i = 0; i < 20; ++i) {
      end.post();
      EXPECT_EQ(end.sent(), IBV_WC_SUCCESS);
      EXPECT_EQ(end.received(), IBV_WC_SUCCESS);
    }
  }
  rank.barrier();
  loss.happens();
  if (stage != Stage::kIsConnected) end.post();
  if (stage == Stage::kIsConnected) end.await_disconnect();
  if (stage == Stage::kTransfers) {
    EXPECT_EQ(end.sent(), IBV_WC_RETRY_EXC_ERR);
  }
  if (stage != Stage::kCloses) {
    EXPECT_EQ(end.received(), IBV_WC_WR_FLUSH_ERR);
  }
  end.close();
  loss.is_noticed();
}

TEST(CmLost, TheOtherEndNoticesAtEachStage) {
  std::vector<Case> cases;
  for (const Fate fate : {Fate::kExits, Fate::kIsKilled, Fate::kIsStopped, Fate::kIsCutOff}) {
    for (const Stage stage : kStages) {
      for (const int victim : {0, 1}) {
        cases.push_back(
            {"fate " + std::to_string(static_cast<int>(fate)) + ", victim " +
                 std::to_string(victim) + ", stage " + std::to_string(static_cast<int>(stage)),
             [=] {
               lose_a_rank(victim, fate, "lo",
                           [&](Rank& rank, Loss& loss) { lose_at(rank, loss, stage, victim); });
             }});
      }
    }
  }
  run_apart(cases);
}

}  // namespace
}  // namespace pacecar::test::lost_ids_test
