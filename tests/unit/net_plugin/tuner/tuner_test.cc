// Clusters made from facts, and contexts of tuners.
#include "net_plugin/tuner/tuner.h"

#include <gtest/gtest.h>

#include <set>

namespace pacecar::tuner::tuner_test {
namespace {

Facts facts_of_two_rails() {
  return {.ranks = 64,
          .nodes = 8,
          .nics = {nic_kind("mlx5_0", 25e9, 4096), nic_kind("soft:udp:eth0", 3.125e9, 0)},
          .ranks_per_nvlink_domain = 8};
}

TEST(TunerFacts, FactsGiveACluster) {
  const auto clusters = clusters_of(facts_of_two_rails());
  ASSERT_TRUE(clusters.has_value());
  ASSERT_EQ(clusters->size(), 1U);
  const auto& cluster = clusters->front().cluster;
  EXPECT_EQ(cluster.hosts(), 8U);
  EXPECT_EQ(cluster.groups[0].gpus, 8U);
  ASSERT_EQ(cluster.groups[0].nics.size(), 2U);
  EXPECT_EQ(cluster.nic_kinds[0].rate, 25e9);
  EXPECT_EQ(cluster.nic_kinds[1].rate, 3.125e9);
  EXPECT_GT(cluster.nic_kinds[1].latency_s, cluster.nic_kinds[0].latency_s);
  EXPECT_TRUE(cluster.fabric.rails);
  EXPECT_EQ(cluster.fabric.oversubscription, 1);
}

TEST(TunerFacts, WithoutRailsSeveralClustersArePossible) {
  Facts facts = facts_of_two_rails();
  facts.nics.pop_back();
  const auto clusters = clusters_of(facts);
  ASSERT_TRUE(clusters.has_value());
  ASSERT_GT(clusters->size(), 1U);
  EXPECT_EQ(clusters->front().cluster.fabric.hosts_per_leaf, 0U);  // one switch
  EXPECT_EQ(clusters->back().cluster.fabric.oversubscription, 4);
}

TEST(TunerFacts, ConfiguredSwitchesAreThoseOfTheCluster) {
  Facts facts = facts_of_two_rails();
  facts.oversubscription = 4;
  facts.hosts_per_leaf = 2;
  const auto clusters = clusters_of(facts);
  ASSERT_TRUE(clusters.has_value());
  ASSERT_EQ(clusters->size(), 1U);
  EXPECT_EQ(clusters->front().cluster.fabric.oversubscription, 4);
  EXPECT_EQ(clusters->front().cluster.fabric.hosts_per_leaf, 2U);
}

TEST(TunerFacts, EveryPossibleClusterHasTheConfiguredDelay) {
  Facts facts = facts_of_two_rails();
  facts.nics.pop_back();
  const double assumed_s = clusters_of(facts)->front().cluster.fabric.cable_latency_s;
  EXPECT_GT(assumed_s, 0);
  facts.cable_delay_s = 3 * assumed_s;
  const auto clusters = clusters_of(facts);
  ASSERT_TRUE(clusters.has_value());
  EXPECT_GT(clusters->size(), 1U);
  for (const PossibleCluster& possible : *clusters) {
    EXPECT_EQ(possible.cluster.fabric.cable_latency_s, facts.cable_delay_s);
  }
}

TEST(TunerFacts, UnusableFactsGiveAnError) {
  const auto message = [](auto change) {
    Facts facts = facts_of_two_rails();
    change(facts);
    const auto clusters = clusters_of(facts);
    return clusters ? std::string() : clusters.error().message;
  };
  EXPECT_NE(message([](Facts& f) { f.nics[1].rate = 0; }).find("soft:udp:eth0"), std::string::npos);
  EXPECT_NE(message([](Facts& f) { f.nics.clear(); }), "");
  EXPECT_NE(message([](Facts& f) { f.nodes = 1; }), "");
  EXPECT_NE(message([](Facts& f) { f.ranks = 63; }), "");
  EXPECT_NE(message([](Facts& f) { f.ranks_per_nvlink_domain = 64; }), "");
  EXPECT_NE(message([](Facts& f) {
              f.ranks = 8;
              f.ranks_per_nvlink_domain = 1;
              f.nics.resize(3, f.nics[0]);
            }),
            "");
}

TEST(Tuners, ClosedContextIsNeverReused) {
  Tuners tuners;
  const auto tuning = std::make_shared<Tuning>(Tuner({}), false);
  std::set<void*> seen;
  for (int i = 0; i < 1000; ++i) {
    void* const context = tuners.open(tuning);
    ASSERT_EQ(tuners.find(context), tuning);
    ASSERT_TRUE(seen.insert(context).second);
    tuners.close(context);
    tuners.close(context);
  }
  for (void* const context : seen) EXPECT_EQ(tuners.find(context), nullptr);
  EXPECT_EQ(tuners.find(nullptr), nullptr);
}

}  // namespace
}  // namespace pacecar::tuner::tuner_test
