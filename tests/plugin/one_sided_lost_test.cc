// A rank is lost, at each stage of a communicator for puts: the other one fails, also one that only
// waits.
#include "tests/plugin/one_sided_member.h"
#include "tests/support/lost_peer.h"

namespace pacecar::test::one_sided_lost_test {
namespace {

using nccl::NcclResult;

enum class Stage { kListens, kHasJoined, kPuts, kLeaves };
constexpr Stage kStages[] = {Stage::kListens, Stage::kHasJoined, Stage::kPuts, Stage::kLeaves};

constexpr const char* kTable = "ncclRmaPlugin_v16";
constexpr size_t kBytes = 1 << 20;

void lose_before_join(Rank& rank, Loss& loss) {
  setenv("NCCL_RMA_PLUGIN", "pacecar", 1);
  const auto net = start_host();
  nccl::OneSidedHost host(*net, kTable);
  const int peer = 1 - rank.rank();
  rank.give(peer, host.handle());
  std::vector<HandleBytes> handles(2, host.handle());
  handles[static_cast<size_t>(peer)] = rank.take(peer);
  loss.happens();
  EXPECT_EQ(host.try_join(std::move(handles), rank.rank()), NcclResult::kRemoteError);
  EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, nic_address()));
  loss.is_noticed();
}

void lose_member(Rank& rank, Loss& loss, Stage stage, bool puts) {
  Member member(rank, kTable);
  const int peer = 1 - rank.rank();
  {
    const Shared data(member, 2 * kBytes);
    if (stage == Stage::kPuts) {
      for (int i = 0; i < 20; ++i)
        member->finish({member->put(data.at(0), kBytes, data.at(kBytes), peer)});
    }
    rank.barrier();
    if (stage == Stage::kLeaves) member->put(data.at(0), kBytes, data.at(kBytes), peer);
    loss.happens();
    if (stage != Stage::kLeaves) {
      if (puts) {
        EXPECT_EQ(member.first_failure(data.at(0), kBytes, peer), NcclResult::kRemoteError);
      }
      poll_until("the error", [&] {
        member->table().progress(member->puts());
        return member->has_error();
      });
      const auto warned = [](const std::string& part) {
        return was_logged(nccl::LogSeverity::kWarn, part);
      };
      EXPECT_TRUE(warned(nic_address()) || warned("lo has no link"));
    }
  }
  member.host().leave();
  loss.is_noticed();
}

void lose_at_each_stage(Fate fate) {
  std::vector<Case> cases;
  for (const Stage stage : kStages) {
    if (fate == Fate::kNeverActs && stage != Stage::kListens) continue;
    for (const int victim : {0, 1}) {
      for (const bool puts : {false, true}) {
        if (puts && stage != Stage::kHasJoined && stage != Stage::kPuts) continue;
        cases.push_back({"victim " + std::to_string(victim) + ", stage " +
                             std::to_string(static_cast<int>(stage)) + (puts ? ", puts" : ""),
                         [=] {
                           set_timeouts(stage == Stage::kListens ? "100ms" : "10s");
                           lose_a_rank(victim, fate, "lo", [&](Rank& rank, Loss& loss) {
                             stage == Stage::kListens ? lose_before_join(rank, loss)
                                                      : lose_member(rank, loss, stage, puts);
                           });
                         }});
      }
    }
  }
  run_apart(cases);
}

TEST(OneSidedLost, RankThatExits) { lose_at_each_stage(Fate::kExits); }
TEST(OneSidedLost, RankThatIsKilled) { lose_at_each_stage(Fate::kIsKilled); }
TEST(OneSidedLost, RankThatIsStopped) { lose_at_each_stage(Fate::kIsStopped); }
TEST(OneSidedLost, RankThatIsCutOff) { lose_at_each_stage(Fate::kIsCutOff); }
TEST(OneSidedLost, RankThatNeverJoins) { lose_at_each_stage(Fate::kNeverActs); }

}  // namespace
}  // namespace pacecar::test::one_sided_lost_test
