// Graphs: which commands are captured, when they run, and which objects a graph keeps alive.
#include "bench/nccl/cpu_device/graph.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

namespace pacecar::graph_test {
namespace {

using nccl::cpu::Command;
using nccl::cpu::Event;
using nccl::cpu::Gpu;
using nccl::cpu::Graph;
using nccl::cpu::Stream;

Stream& new_stream() { return Gpu::get(0).create_stream(false); }
void wait_for(Stream& stream) { stream.gpu().wait_until_idle(stream); }

class GraphTest : public testing::Test {
 protected:
  ~GraphTest() override {
    for (Stream* const stream : {&origin_, &other_}) stream->gpu().destroy(*stream);
  }
  void note(Stream& stream, int number) {
    stream.gpu().enqueue(stream, [this, number] {
      ran_.push_back(number);
      return true;
    });
  }
  std::vector<int> launched(const Graph& graph) {
    ran_.clear();
    graph.launch(origin_);
    wait_for(origin_);
    return ran_;
  }

  Stream& origin_ = new_stream();
  Stream& other_ = new_stream();
  std::vector<int> ran_;
};

TEST_F(GraphTest, RunsAtEachLaunchWhatWasCaptured) {
  const std::unique_ptr<Graph> graph(Graph::begin(origin_));
  EXPECT_EQ(origin_.graph(), graph.get());
  note(origin_, 1);
  note(origin_, 2);
  note(other_, 3);  // is not captured
  wait_for(origin_);
  wait_for(other_);
  EXPECT_EQ(ran_, std::vector{3});
  graph->end();
  EXPECT_EQ(origin_.graph(), nullptr);
  EXPECT_EQ(launched(*graph), (std::vector{1, 2}));
  EXPECT_EQ(launched(Graph(*graph)), (std::vector{1, 2}));
  note(origin_, 4);
  wait_for(origin_);
  EXPECT_EQ(ran_, (std::vector{1, 2, 4}));
}

TEST_F(GraphTest, BeginsEachLaunchAnew) {
  const std::unique_ptr<Graph> graph(Graph::begin(origin_));
  int made = 0;
  int calls = 0;
  origin_.gpu().enqueue_made(origin_, [&]() -> Command {
    ++made;
    return [&calls, left = 3]() mutable { return ++calls, --left == 0; };
  });
  origin_.gpu().enqueue(origin_, [&calls, left = 2]() mutable { return ++calls, --left == 0; });
  graph->end();
  EXPECT_EQ(made, 0);
  launched(*graph);
  launched(*graph);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(calls, 10);
}

TEST_F(GraphTest, AnEventTakesAStreamAlong) {
  Event event;
  const std::unique_ptr<Graph> graph(Graph::begin(origin_));
  note(origin_, 1);
  event.record(origin_);
  EXPECT_TRUE(event.reached());  // nothing has to be waited for outside of the graph
  event.hold(other_);
  note(other_, 2);
  note(origin_, 3);
  graph->end();
  EXPECT_EQ(other_.graph(), nullptr);
  EXPECT_EQ(launched(*graph), (std::vector{1, 2, 3}));
  // The capture is over: the event means nothing more.
  event.hold(other_);
  EXPECT_EQ(other_.graph(), nullptr);
}

// What NCCL does to keep the kernels of graphs and of streams in one order.
TEST_F(GraphTest, EventsInAGraphMeanTheirLastRecordBeforeItsLaunch) {
  Event before;
  Event after;
  const std::unique_ptr<Graph> graph(Graph::begin(origin_));
  before.hold(origin_);
  note(origin_, 1);
  graph->add([&] { return after.next_point(); });
  graph->end();
  std::atomic<bool> open = false;
  other_.gpu().enqueue(other_, [&] { return open.load(); });
  before.record(other_);
  graph->launch(origin_);
  Stream& beside = new_stream();  // time in which the graph could run
  beside.gpu().enqueue(beside, [turns = 5]() mutable { return --turns == 0; });
  wait_for(beside);
  beside.gpu().destroy(beside);
  EXPECT_FALSE(after.reached());
  EXPECT_TRUE(ran_.empty());
  after.hold(other_);
  note(other_, 2);
  open = true;
  wait_for(other_);
  EXPECT_EQ(ran_, (std::vector{1, 2}));
  wait_for(origin_);
}

TEST_F(GraphTest, KeepsEventsThatItWaitsFor) {
  auto event = std::make_unique<Event>();
  const std::unique_ptr<Graph> graph(Graph::begin(origin_));
  event->hold(origin_);  // recorded nowhere
  note(origin_, 1);
  graph->end();
  event.reset();
  EXPECT_EQ(launched(*graph), std::vector{1});
}

TEST_F(GraphTest, KeepsObjectsUntilItsLastLaunchIsDone) {
  auto object = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = object;
  std::atomic<bool> open = false;
  {
    const std::unique_ptr<Graph> graph(Graph::begin(origin_));
    graph->retain(std::move(object));
    origin_.gpu().enqueue(origin_, [&] { return open.load(); });
    graph->end();
    graph->launch(origin_);
  }
  EXPECT_FALSE(kept.expired());
  open = true;
  wait_for(origin_);
  note(origin_, 1);  // a finished launch is freed before the next command runs
  wait_for(origin_);
  EXPECT_TRUE(kept.expired());
}

TEST_F(GraphTest, MayBeLaunchedIntoAnother) {
  const std::unique_ptr<Graph> inner(Graph::begin(origin_));
  note(origin_, 1);
  inner->end();
  const std::unique_ptr<Graph> outer(Graph::begin(origin_));
  EXPECT_NE(inner->id(), outer->id());
  inner->launch(origin_);
  note(origin_, 2);
  outer->end();
  EXPECT_EQ(launched(*outer), (std::vector{1, 2}));
}

}  // namespace
}  // namespace pacecar::graph_test
