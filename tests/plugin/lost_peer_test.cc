// A peer is lost, at each stage of a connection: the calls of the other end fail.
#include "tests/support/lost_peer.h"

#include <cstdlib>
#include <string>

#include "tests/plugin/stream.h"

namespace pacecar::test::lost_peer_test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

// How far the connection is then. Rank 0 accepts and receives, rank 1 connects and sends.
enum class Stage { kListens, kIsCalled, kHasProof, kIsConnected, kTransfers, kCloses };
constexpr Stage kStages[] = {Stage::kListens,     Stage::kIsCalled,  Stage::kHasProof,
                             Stage::kIsConnected, Stage::kTransfers, Stage::kCloses};

// The interface of the first NIC.
const char* link() { return nic_names().ends_with(":wire") ? "wire" : "lo"; }

class Ends {
 public:
  Ends(Rank& rank, Loss& loss) : rank_(rank), loss_(loss), host_(start_host()) {
    if (rank_.rank() == 0) {
      listening_ = host_->listen();
      rank_.give(1, listening_.handle);
    } else {
      handle_ = rank_.take(0);
    }
  }

  void lose_peer_at(Stage stage) {
    if (stage > Stage::kHasProof) return lose_peer_when_connected(stage);
    if (stage >= Stage::kIsCalled) call_of(1);  // TCP connects
    if (stage == Stage::kHasProof) {
      call_of(0);  // the challenge
      call_of(1);  // the proof, with the offer
    }
    loss_.happens();
    EXPECT_EQ(error_of_set_up(), NcclResult::kRemoteError);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, nic_address()));
    loss_.is_noticed();
    if (rank_.rank() == 0) host_->close_listen(listening_.comm);
  }

 private:
  void call_of(int caller) {
    if (rank_.rank() == caller) {
      EXPECT_EQ(caller == 0 ? host_->try_accept(listening_.comm) : host_->try_connect(handle_),
                nullptr);
    }
    rank_.barrier();
  }

  // The error of the call that fails.
  NcclResult error_of_set_up() {
    NcclResult result = NcclResult::kSuccess;
    poll_until("the error", [&] {
      void* comm = nullptr;
      result = rank_.rank() == 0
                   ? host_->net().accept(listening_.comm, &comm, nullptr)
                   : host_->net().connect(host_->context(), 0, handle_.data(), &comm, nullptr);
      EXPECT_EQ(comm, nullptr);
      return result != NcclResult::kSuccess || comm != nullptr;
    });
    return result;
  }

  void lose_peer_when_connected(Stage stage) {
    void* const comm = rank_.rank() == 0 ? host_->accept(listening_.comm) : host_->connect(handle_);
    Buffer buffer(*host_, comm, kStreamRequests * kStreamBytes);
    rank_.barrier();
    if (stage != Stage::kIsConnected) {
      EXPECT_EQ(stream(*host_, rank_, comm, buffer, 20), NcclResult::kSuccess);
      rank_.barrier();  // with more of them under way
    }
    loss_.happens();
    if (stage != Stage::kCloses) expect_stream_fails(comm, buffer);
    buffer.deregister();
    close_rank(*host_, rank_, comm);
    loss_.is_noticed();
    if (rank_.rank() == 0) host_->close_listen(listening_.comm);
  }

  void expect_stream_fails(void* comm, const Buffer& buffer) {
    EXPECT_EQ(stream(*host_, rank_, comm, buffer, SIZE_MAX), NcclResult::kRemoteError);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, nic_address()));
  }

  Rank& rank_;
  Loss& loss_;
  std::unique_ptr<FakeNcclHost> host_;
  Listening listening_;
  HandleBytes handle_{};
};

void lose_at_each_stage(int victim, Fate fate) {
  const bool rdma = nic_names().find(':') == std::string::npos;
  if (rdma && fate == Fate::kIsCutOff) GTEST_SKIP() << "its own cable: tests/lab/killed.sh";
  std::vector<Case> cases;
  for (const Stage stage : kStages) {
    // Who has connected is waited for.
    if (fate == Fate::kNeverActs && stage > Stage::kHasProof) continue;
    cases.push_back({"stage " + std::to_string(static_cast<int>(stage)), [=] {
                       set_timeouts(stage < Stage::kHasProof ? "100ms"  // 60 times without a proof
                                    : stage == Stage::kHasProof ? "5s"
                                                                : "10s");
                       lose_a_rank(victim, fate, link(), [&](Rank& rank, Loss& loss) {
                         Ends(rank, loss).lose_peer_at(stage);
                       });
                     }});
  }
  run_apart(cases, rdma);
}

TEST(LostPeer, AcceptAndReceiveFailIfTheCallerExits) { lose_at_each_stage(1, Fate::kExits); }
TEST(LostPeer, AcceptAndReceiveFailIfTheCallerIsKilled) { lose_at_each_stage(1, Fate::kIsKilled); }
TEST(LostPeer, AcceptAndReceiveFailIfTheCallerIsStopped) {
  lose_at_each_stage(1, Fate::kIsStopped);
}
TEST(LostPeer, AcceptFailsIfTheCallerNeverCalls) { lose_at_each_stage(1, Fate::kNeverActs); }
TEST(LostPeer, ConnectAndSendFailIfTheListenerExits) { lose_at_each_stage(0, Fate::kExits); }
TEST(LostPeer, ConnectAndSendFailIfTheListenerIsKilled) { lose_at_each_stage(0, Fate::kIsKilled); }
TEST(LostPeer, ConnectAndSendFailIfTheListenerIsStopped) {
  lose_at_each_stage(0, Fate::kIsStopped);
}
TEST(LostPeer, ConnectFailsIfTheListenerNeverAccepts) { lose_at_each_stage(0, Fate::kNeverActs); }
TEST(LostPeer, BothEndsFailIfTheyAreCutOff) { lose_at_each_stage(1, Fate::kIsCutOff); }

}  // namespace
}  // namespace pacecar::test::lost_peer_test
