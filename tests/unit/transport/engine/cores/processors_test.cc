// The processors near a NIC, on any machine.
#include "transport/engine/cores/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace pacecar::processors_test {
namespace {

TEST(Processors, MatchTheAffinityOfTheProcess) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  const Processors processors("lo");
  EXPECT_EQ(processors.count(), static_cast<uint32_t>(CPU_COUNT(&usable)));
  EXPECT_EQ(Processors("no such interface").count(), processors.count());
  std::thread([&] {
    processors.bind_this_thread();
    cpu_set_t bound;
    ASSERT_EQ(sched_getaffinity(0, sizeof bound, &bound), 0);
    EXPECT_TRUE(CPU_EQUAL(&bound, &usable));
  }).join();
}

TEST(Processors, AutoLeavesMostProcessorsToTheApplication) {
  EXPECT_EQ(engines_for(1, Rate::from_gbps(400)), 1U);
  EXPECT_EQ(engines_for(15, Rate::from_gbps(400)), 1U);
  EXPECT_EQ(engines_for(16, Rate::from_gbps(400)), 2U);
  EXPECT_EQ(engines_for(16, Rate()), 2U);
  EXPECT_EQ(engines_for(128, Rate::from_gbps(100)), 4U);
  EXPECT_EQ(engines_for(128, Rate::from_gbps(25)), 1U) << "one engine keeps up";
}

}  // namespace
}  // namespace pacecar::processors_test
