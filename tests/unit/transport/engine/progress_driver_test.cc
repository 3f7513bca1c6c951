// The keeper's thread itself: that it sleeps when nothing is due, and wakes for all work that it
// must do. progress_state_test.cc tests its decisions.
#include "transport/engine/progress_driver.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/waiting.h"
#include "transport/engine/own_thread.h"

namespace pacecar::progress_driver_test {
namespace {

using test::eventually;
using std::chrono_literals::operator""ms;

// Work is a count of submissions; a turn does all submitted work.
class Counted final : public Driven {
 public:
  explicit Counted(const ProgressPolicy& policy)
      : driver_(ProgressDriver::make(*this, policy).value()) {}
  ~Counted() { driver_->stop(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  ProgressDriver& driver() { return *driver_; }
  void submit() {
    submitted_.fetch_add(1);
    driver_->wake();
  }
  Turn take_turn() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return Turn::kBusy;
    turns_.fetch_add(1);
    return done_.exchange(submitted_.load()) == submitted_.load() ? Turn::kIdle : Turn::kMoved;
  }
  void prepare_to_sleep() override {
    const std::lock_guard lock(mutex_);
    driver_->announce_sleep(due_.load());
  }
  bool needed() override { return needed_.load(); }
  bool has_submissions() const override { return submitted_.load() != done_.load(); }
  void sleep(Instant until, int bell) override {
    asleep_.fetch_add(1);
    pollfd waiting{bell, POLLIN, 0};
    sleep_until(until, {&waiting, 1});
    woken_.fetch_add(1);
  }

  bool done() const { return !has_submissions(); }
  bool sleeps() const { return asleep_.load() > woken_.load(); }
  uint64_t turns() const { return turns_.load(); }
  void set_due(Instant due) { due_ = due; }
  void set_needed(bool needed) { needed_ = needed; }

 private:
  std::mutex mutex_;
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> turns_{0};
  std::atomic<uint64_t> asleep_{0};
  std::atomic<uint64_t> woken_{0};
  std::atomic<Instant> due_{Instant::never()};
  std::atomic<bool> needed_{true};
  std::unique_ptr<ProgressDriver> driver_;
};

constexpr ProgressPolicy kAlways{.always = true, .nap = Duration::from_us(100)};

TEST(ProgressDriver, SleepsUntilWorkIsSubmitted) {
  Counted counted(kAlways);
  counted.driver().start();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(eventually([&] { return counted.sleeps(); })) << i;
    counted.submit();
    ASSERT_TRUE(eventually([&] { return counted.done(); })) << i;
  }
}

// The keeper is between its last turn and its sleep at each of many points.
TEST(ProgressDriver, NoSubmissionIsLostWhileItFallsAsleep) {
  Counted counted(kAlways);
  counted.driver().start();
  for (int i = 0; i < 20'000; ++i) {
    counted.submit();
    for (int spin = 0; spin < i % 64; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (i % 16 == 0) {
      ASSERT_TRUE(eventually([&] { return counted.done(); })) << i;
    }
  }
  EXPECT_TRUE(eventually([&] { return counted.done(); }));
}

TEST(ProgressDriver, ACallWithAnEarlierDeadlineWakesIt) {
  Counted counted(kAlways);
  counted.driver().start();
  ASSERT_TRUE(eventually([&] { return counted.sleeps(); }));
  const uint64_t turns = counted.turns();
  counted.driver().note_call(clock_now(), Instant::never());
  EXPECT_EQ(counted.turns(), turns) << "no earlier one";
  counted.set_due(Instant());
  counted.driver().note_call(clock_now(), Instant::from_ns(1));
  EXPECT_TRUE(eventually([&] { return counted.turns() > turns; }));
}

TEST(ProgressDriver, TakesNoTurnsWhileCallersDoAndAllOnceTheyLeave) {
  Counted counted({.patience = Duration::from_ms(1),
                   .nap = Duration::from_us(100),
                   .longest_nap = Duration::from_us(100)});
  counted.driver().enter();
  counted.driver().start();
  counted.submit();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(counted.turns(), 0U);
  counted.driver().leave();
  EXPECT_TRUE(eventually([&] { return counted.done(); }));
}

TEST(ProgressDriver, SleepsWhileItsCallersDoNotNeedIt) {
  constexpr Duration kNap = Duration::from_us(100);
  Counted counted({.patience = kNap, .nap = kNap, .longest_nap = kNap});
  counted.set_needed(false);
  counted.driver().enter();
  counted.driver().start();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(eventually([&] { return counted.sleeps(); })) << i;
    counted.set_needed(true);
    counted.driver().wake();
    ASSERT_TRUE(eventually([&] { return !counted.sleeps(); })) << i;
    counted.set_needed(false);
  }
  EXPECT_EQ(counted.turns(), 0U);
}

TEST(ProgressDriver, TakesOverAtOnceWhatIsHandedOver) {
  constexpr Duration kLong = Duration::from_s(40);  // longer than the test waits
  Counted counted({.patience = kLong, .nap = kLong, .longest_nap = kLong});
  counted.driver().note_call(clock_now());
  counted.driver().start();
  counted.submit();
  counted.driver().hand_over();
  EXPECT_TRUE(eventually([&] { return counted.done(); }));
}

TEST(ProgressDriver, StopsInASleepAndInANap) {
  for (const Duration patience : {Duration(), Duration::from_s(3600)}) {
    const Duration nap = Duration::from_s(3600);
    Counted counted({.patience = patience, .nap = nap, .longest_nap = nap});
    counted.driver().note_call(clock_now());
    counted.driver().start();
    counted.driver().start();  // does nothing
    if (patience == Duration()) {
      ASSERT_TRUE(eventually([&] { return counted.sleeps(); }));
    }
    counted.driver().stop();
    counted.driver().stop();
  }
}

}  // namespace
}  // namespace pacecar::progress_driver_test
