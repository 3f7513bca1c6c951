#include <gtest/gtest.h>

#include <vector>

#include "transport/sim/event_queue.h"

namespace pacecar {
namespace {

Instant at(int64_t ns) { return Instant::from_ns(ns); }

TEST(EventQueue, OrdersByTimeThenByInsertion) {
  EventQueue<int> queue(6);
  queue.push(at(20), 1);
  queue.push(at(10), 2);
  queue.push(at(20), 3);
  queue.push(at(10), 4);
  queue.push(at(5), 5);
  queue.push(at(20), 6);
  std::vector<int> order;
  while (!queue.empty()) order.push_back(queue.pop().payload);
  EXPECT_EQ(order, (std::vector<int>{5, 2, 4, 1, 3, 6}));
}

TEST(EventQueue, TellsTheNextTime) {
  EventQueue<int> queue(2);
  EXPECT_EQ(queue.next_time(), Instant::never());
  queue.push(at(7), 0);
  queue.push(at(3), 0);
  EXPECT_EQ(queue.next_time(), at(3));
  queue.pop();
  EXPECT_EQ(queue.next_time(), at(7));
}

TEST(EventQueueDeathTest, HoldsItsBound) {
  EventQueue<int> queue(1);
  queue.push(at(1), 0);
  EXPECT_DEATH(queue.push(at(2), 0), "capacity_");
}

}  // namespace
}  // namespace pacecar
