// Users' weights, budgets and hints decide how `pace` shares links; the message layer passes them
// on. Three simulated hosts at 100 Gb/s around a switch.
#include <gtest/gtest.h>

#include "tests/support/pending.h"
#include "tests/support/sim_host.h"

namespace pacecar::test::weights_and_budgets_test {
namespace {

constexpr Bytes kMessage = 32 << 20;  // more than any test sends

class MessengerShareTest : public testing::Test {
 protected:
  // Starts a flow with a large backlog; returns its number.
  size_t start(size_t from, size_t to, uint32_t weight) {
    const size_t number = prepare(from, to, weight);
    Job& job = *jobs_[number];
    const auto region = expose(job, from);
    PACECAR_CHECK(hosts_[from]->messenger().send(
        job.ends.send, test::pending(job.sent, {job.data.data(), kMessage, 0, region.key})));
    return number;
  }
  // Makes a flow whose receiver has posted a receive and whose sender does not send; its number.
  size_t prepare(size_t from, size_t to, uint32_t weight) {
    auto job = std::make_unique<Job>();
    job->from = from;
    job->ends = connect(*hosts_[from], *hosts_[to], to, network_.now(), weight);
    test::pending(job->received);
    const MemoryRegion region = expose(*job, to);
    job->received.add(job->data.data(), kMessage, 0, {region.remote_address, region.key});
    PACECAR_CHECK(
        hosts_[to]->messenger().receive(job->ends.receive, job->received, network_.now()));
    jobs_.push_back(std::move(job));
    return jobs_.size() - 1;
  }
  void make_hosts(Rate rate_max = {}) {
    for (size_t port = 0; port < 3; ++port) {
      hosts_.push_back(std::make_unique<SimHost>(
          network_, port, port,
          SimHostConfig{
              .window_packets = 1024, .rate_max = rate_max, .congestion_control = "pace"}));
    }
  }
  void run_for(Duration time) {
    run(network_, hosts_, network_.now() + time, [] { return false; });
  }
  double granted_gbps(size_t job) {
    const Rate grant = hosts_[jobs_[job]->from]->messenger().explain(jobs_[job]->ends.send).grant;
    return static_cast<double>(grant.bps()) / 1e9;
  }
  void expect_peers(size_t port, uint32_t peers) {
    hosts_[port]->messenger().hint({.peers = peers}, network_.now());
  }
  Bytes acknowledged(size_t job) {
    return hosts_[jobs_[job]->from]->messenger().acknowledged_bytes(jobs_[job]->ends.send);
  }
  // The goodput of each flow during the next millisecond, in Gb/s.
  std::vector<double> rates() {
    std::vector<double> gbps(jobs_.size());
    for (size_t i = 0; i < gbps.size(); ++i) gbps[i] = -static_cast<double>(acknowledged(i));
    run_for(Duration::from_ms(1));
    for (size_t i = 0; i < gbps.size(); ++i) {
      gbps[i] = (gbps[i] + static_cast<double>(acknowledged(i))) * 8 / 1e6;
    }
    return gbps;
  }

 private:
  struct Job {
    size_t from = 0;
    ConnectionPair ends;
    std::vector<uint8_t> data = std::vector<uint8_t>(kMessage);
    MessageSend sent;
    MessageReceive received;
  };

  MemoryRegion expose(Job& job, size_t port) {
    return hosts_[port]
        ->nic()
        .register_memory(job.data.data(), job.data.size(), Access::kRemoteWrite)
        .value();
  }

  SimStar network_{3};
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
};

TEST_F(MessengerShareTest, WeightsDivideTheReceiversLink) {
  make_hosts();
  start(0, 2, 1);
  start(1, 2, 3);
  run_for(Duration::from_us(500));
  const std::vector<double> gbps = rates();
  EXPECT_NEAR(gbps[1] / gbps[0], 3, 0.3);
  EXPECT_GT(gbps[0] + gbps[1], 80) << "nothing is wasted";
}

TEST_F(MessengerShareTest, WeightsDivideTheSendersLink) {
  make_hosts();
  start(0, 1, 4);
  start(0, 2, 1);
  run_for(Duration::from_us(500));
  const std::vector<double> gbps = rates();
  EXPECT_NEAR(gbps[0] / gbps[1], 4, 0.4);
  EXPECT_GT(gbps[0] + gbps[1], 80) << "nothing is wasted";
}

TEST_F(MessengerShareTest, BudgetHoldsForAllFlowsOfANicTogether) {
  make_hosts(Rate::from_gbps(10));
  start(0, 1, 1);
  start(0, 2, 1);
  run_for(Duration::from_us(500));
  const std::vector<double> gbps = rates();
  EXPECT_LE(gbps[0] + gbps[1], 10);
  EXPECT_GT(gbps[0] + gbps[1], 8) << "the budget is used";
  EXPECT_NEAR(gbps[0] / gbps[1], 1, 0.1);
}

// Receives are posted and no sender has begun: an idle flow is granted its part of the link among
// the flows that may begin together.
TEST_F(MessengerShareTest, HintLimitsTheFlowsThatMayBeginTogether) {
  make_hosts();
  const std::array<size_t, 2> idle{prepare(0, 2, 1), prepare(1, 2, 1)};
  run_for(Duration::from_us(20));  // less than a grant's validity
  for (const size_t job : idle) EXPECT_LT(granted_gbps(job), 60) << "both may begin together";
  expect_peers(2, 1);
  run_for(Duration::from_us(20));
  for (const size_t job : idle) EXPECT_GT(granted_gbps(job), 90) << "one begins at a time";
}

}  // namespace
}  // namespace pacecar::test::weights_and_budgets_test
