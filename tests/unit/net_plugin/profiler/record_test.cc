// The profiler's record and recorder: times, bounds, wrong handles, concurrent readers and writers.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "net_plugin/profiler/document.h"
#include "net_plugin/profiler/recorder.h"

namespace pacecar::profiler::record_test {
namespace {

uint64_t g_now = 0;
uint64_t scripted_ns() { return g_now; }

constexpr Description kCollective{
    .kind = EventKind::kCollective, .operation = 4, .datatype = 7, .number = 3, .amount = 1000};
constexpr Description kSendOp{
    .kind = EventKind::kProxyOp, .channel = 2, .sending = true, .peer = 1};
constexpr Description kStep{.kind = EventKind::kProxyStep, .number = 5};

TEST(ProfileRecord, WaitsAreAddedToOperationAndCollective) {
  Record record({0xabc, 1, 4, 2});
  const uint64_t collective = record.start(kCollective, 0, 100);
  record.stop(collective, 110);
  const uint64_t op = record.start(kSendOp, collective, 120);
  const uint64_t step = record.start(kStep, op, 130);
  record.wait(step, Wait::kGpu, 0, 130);
  record.wait(step, Wait::kPeer, 0, 150);
  record.wait(step, Wait::kNetwork, 64, 160);
  record.stop(step, 200);
  record.stop(op, 210);

  const std::vector<Event> operations = record.operations();
  ASSERT_EQ(operations.size(), 2U);
  const Event& whole = operations[0];
  EXPECT_EQ(whole.what.amount, 1000U);
  EXPECT_EQ(whole.what.operation, 4);
  EXPECT_EQ(whole.what.peer, -1);
  EXPECT_EQ(whole.moment_ns, 110U);
  EXPECT_EQ(whole.stop_ns, 210U);
  EXPECT_EQ(whole.bytes, 64U);
  EXPECT_EQ(whole.waits, (WaitTimes{0, 20, 10, 40, 0}));
  EXPECT_EQ(operations[1].parent, whole.id);
  EXPECT_EQ(operations[1].first_ns, 40U);
  EXPECT_EQ(operations[1].what.channel, 2);
  EXPECT_TRUE(operations[1].what.sending);
  const std::vector<Event> steps = record.steps();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].moment_ns, 160U);
  EXPECT_EQ(steps[0].what.number, 5U);
  EXPECT_EQ(record.totals(), (Totals{1, 0, 64, 0, 90, 20, 10, 40, 0}));
}

TEST(ProfileRecord, DataOfAReceiveArriveWhenTheNetworkWaitEnds) {
  Record record;
  const uint64_t op = record.start({.kind = EventKind::kProxyOp}, 0, 1);
  const uint64_t step = record.start(kStep, op, 2);
  record.wait(step, Wait::kNetwork, 0, 2);
  record.wait(step, Wait::kFlush, 10, 30);
  record.wait(step, Wait::kGpu, 10, 35);
  record.stop(step, 50);
  record.stop(step, 60);
  EXPECT_EQ(record.steps()[0].moment_ns, 30U);
  EXPECT_EQ(record.steps()[0].stop_ns, 50U);
  EXPECT_EQ(record.steps()[0].waits, (WaitTimes{0, 15, 0, 28, 5}));
}

TEST(ProfileRecord, NewestStepsAreKeptAndUpdatesOfOlderOnesAreDropped) {
  Record record;
  const uint64_t first = record.start(kStep, 0, 1);
  for (size_t i = 1; i <= Record::kSteps; ++i) record.start(kStep, 0, i);
  record.wait(first, Wait::kGpu, 77, 5);
  record.stop(first, 9);
  const std::vector<Event> steps = record.steps();
  ASSERT_EQ(steps.size(), Record::kSteps);
  for (const Event& step : steps) EXPECT_EQ(step.stop_ns + step.bytes, 0U);
}

TEST(ProfileRecord, RecordedMessagesPerSecondAreLimited) {
  Record record;
  constexpr uint64_t kMessages = 100;
  uint64_t messages = 0;
  uint64_t begun = 0;
  for (uint64_t now = 1; now < 10'000'000'000; now += 1'000'000) {  // 100,000 per second
    const uint64_t op =
        record.start({.kind = EventKind::kProxyOp, .sending = true, .number = kMessages}, 0, now);
    EXPECT_NE(op, 0U);
    ++begun;
    if (record.start(kStep, op, now) != 0) messages += kMessages;
    record.stop(op, now + 1);
  }
  EXPECT_LE(messages, 11 * Record::kMessageRate + kMessages);
  EXPECT_GE(messages, 9 * Record::kMessageRate);
  EXPECT_GT(begun * kMessages, 9 * messages);
  EXPECT_EQ(record.totals()[kBusyNs], messages / kMessages) << "1 ns of each";
  const std::vector<Event> operations = record.operations();
  EXPECT_FALSE(std::ranges::all_of(operations, [](const Event& e) { return e.what.detailed; }));
  EXPECT_TRUE(std::ranges::any_of(operations, [](const Event& e) { return e.what.detailed; }));
}

TEST(ProfileRecord, ReaderBesideTwoWritersSeesWholeEvents) {
  Record record;
  std::atomic<bool> done{false};
  const auto write = [&](uint64_t value) {
    for (int i = 0; i < 100'000; ++i) {
      record.start({.kind = EventKind::kProxyStep, .number = value, .amount = value}, value, value);
    }
  };
  std::thread reader([&] {
    while (!done) {
      for (const Event& event : record.steps()) {
        ASSERT_EQ(event.start_ns, event.what.number);
        ASSERT_EQ(event.start_ns, event.what.amount);
        ASSERT_EQ(event.start_ns, event.parent);
      }
    }
  });
  std::thread other([&] { write(1); });
  write(2);
  other.join();
  done = true;
  reader.join();
}

TEST(ProfileRecorder, UnknownAndClosedHandlesAreIgnored) {
  Recorder recorder(scripted_ns);
  const auto pointer = [](uintptr_t value) { return reinterpret_cast<void*>(value); };
  for (const uintptr_t garbage : {uintptr_t{0}, uintptr_t{1}, uintptr_t{0x5a5a5a50}, ~uintptr_t{0},
                                  uintptr_t{0x7ffd12345678}}) {
    EXPECT_EQ(recorder.start(pointer(garbage), kCollective, nullptr), nullptr);
    recorder.stop(pointer(garbage));
    recorder.wait(pointer(garbage), Wait::kGpu, 1);
    recorder.close(pointer(garbage));
  }
  void* const context = recorder.open({1, 0, 2, 1});
  void* const event = recorder.start(context, kCollective, pointer(0x5a5a5a50));
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(recorder.start(event, kCollective, nullptr), nullptr)
      << "an event's handle is no context";
  recorder.close(context);
  recorder.close(context);
  EXPECT_EQ(recorder.start(context, kCollective, nullptr), nullptr);
  void* const next = recorder.open({2, 1, 2, 1});
  EXPECT_NE(next, context);
  recorder.stop(event);  // an event of the old communicator, whose place the new one has
  ASSERT_EQ(recorder.records().size(), 1U);
  EXPECT_EQ(recorder.records()[0]->operations().size(), 0U);
  EXPECT_EQ(recorder.records()[0]->identity().communicator, 2U);
}

TEST(ProfileRecorder, RecordedCommunicatorsAreLimited) {
  Recorder recorder(scripted_ns);
  for (size_t i = 0; i < Recorder::kMaxCommunicators; ++i) EXPECT_NE(recorder.open({}), nullptr);
  EXPECT_EQ(recorder.open({}), nullptr);
}

TEST(ProfileDocument, JsonHasEveryEvent) {
  Recorder recorder(scripted_ns);
  g_now = 1000;
  void* const context = recorder.open({0x12, 3, 4, 2});
  void* const collective = recorder.start(context, kCollective, nullptr);
  void* const op = recorder.start(context, kSendOp, collective);
  recorder.start(context, kStep, op);
  const auto document = nlohmann::json::parse(profile_document(recorder));
  EXPECT_EQ(document["now_ns"], 1000);
  const auto& one = document["communicators"][0];
  EXPECT_EQ(one["communicator"], "0000000000000012");
  EXPECT_EQ(one["rank"], 3);
  EXPECT_EQ(one["totals"]["collectives"], 1);
  EXPECT_EQ(one["operations"].size(), 2U);
  EXPECT_EQ(one["steps"].size(), 1U);
  EXPECT_EQ(one["steps"][0].size(), 20U);
  EXPECT_EQ(one["steps"][0][9], one["operations"][1][0]) << "a step's parent is its operation";
  recorder.close(context);
}

}  // namespace
}  // namespace pacecar::profiler::record_test
