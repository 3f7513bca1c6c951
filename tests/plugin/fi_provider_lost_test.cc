// A peer is lost, at each stage of its acquaintance: the operations with it fail.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/fi_world.h"
#include "tests/support/lost_peer.h"

namespace pacecar::test::fi_provider_lost_test {
namespace {

enum class Stage { kIsKnown, kIsConnected, kTransfers, kCloses };
constexpr Stage kStages[] = {Stage::kIsKnown, Stage::kIsConnected, Stage::kTransfers,
                             Stage::kCloses};
// Both ends wait for a receive and a send of this size, which is not done before the peer is lost.
constexpr size_t kBytes = 64 << 20;

struct Buffers {
  std::vector<uint8_t> sent = std::vector<uint8_t>(kBytes, 1);
  std::vector<uint8_t> received = std::vector<uint8_t>(kBytes);
};

class Operations {
 public:
  // The buffers outlive the endpoint.
  Operations(World& world, Buffers& buffers)
      : world_(world), sent_(buffers.sent), received_(buffers.received) {}

  void receive() {
    world_.end.until_taken([&] {
      return fi_trecv(world_.end.endpoint, received_.data(), kBytes, nullptr, world_.other(), 7, 0,
                      received_.data());
    });
  }
  void send() {
    world_.end.until_taken([&] {
      return fi_tsend(world_.end.endpoint, sent_.data(), kBytes, nullptr, world_.other(), 7,
                      sent_.data());
    });
  }
  void expect_received_in_part() {
    for (const Waiting idle; received_.front() == 0; idle.pause()) world_.end.progress();
  }
  int error_of_send() { return world_.end.outcome_of(sent_.data()).error; }
  int error_of_receive() { return world_.end.outcome_of(received_.data()).error; }

 private:
  World& world_;
  std::vector<uint8_t>& sent_;
  std::vector<uint8_t>& received_;
};

// Who remains answers meanwhile.
void lose(World& world, Loss& loss) {
  if (loss.is_victim()) return loss.happens();
  std::atomic<bool> happened = false;
  std::thread waiter([&] {
    loss.happens();
    happened = true;
  });
  for (const Waiting idle; !happened; idle.pause()) world.end.progress();
  waiter.join();
}

void lose_peer(Rank& rank, Loss& loss, Stage stage) {
  Buffers buffers;
  World world(rank);
  Operations operations(world, buffers);
  if (stage != Stage::kIsKnown) {
    const std::vector<uint8_t> few = pattern(10, 1);
    int context = 0;
    world.end.until_taken([&] {
      return fi_tsend(world.end.endpoint, few.data(), few.size(), nullptr, world.other(), 1,
                      &context);
    });
    expect_tagged(world, few, 1);
    EXPECT_EQ(world.end.outcome_of(&context).error, 0);
    world.meet();
  }
  if (stage > Stage::kIsConnected) {
    operations.receive();
    operations.send();
    if (loss.is_victim()) operations.expect_received_in_part();
  }
  lose(world, loss);
  if (stage <= Stage::kIsConnected) {
    operations.send();
    if (stage == Stage::kIsConnected) operations.receive();
  }
  if (stage != Stage::kCloses) {
    EXPECT_NE(operations.error_of_send(), 0);
    if (stage != Stage::kIsKnown) {
      EXPECT_NE(operations.error_of_receive(), 0);
    }
  }
  loss.is_noticed();
}

void lose_at_each_stage(Fate fate) {
  std::vector<Case> cases;
  for (const Stage stage : kStages) {
    // A program that is not connected yet may compute, or be stopped, as long as it wants.
    if (fate == Fate::kIsStopped && stage == Stage::kIsKnown) continue;
    cases.push_back({"stage " + std::to_string(static_cast<int>(stage)), [=] {
                       set_timeouts();
                       setenv("PACECAR_EXPERT_CMA", "off", 1);
                       lose_a_rank(1, fate, "lo",
                                   [&](Rank& rank, Loss& loss) { lose_peer(rank, loss, stage); });
                     }});
  }
  run_apart(cases);
}

TEST(FiProviderLost, PeerThatExits) { lose_at_each_stage(Fate::kExits); }
TEST(FiProviderLost, PeerThatIsKilled) { lose_at_each_stage(Fate::kIsKilled); }
TEST(FiProviderLost, PeerThatIsStopped) { lose_at_each_stage(Fate::kIsStopped); }
TEST(FiProviderLost, PeerThatIsCutOff) { lose_at_each_stage(Fate::kIsCutOff); }

}  // namespace
}  // namespace pacecar::test::fi_provider_lost_test
