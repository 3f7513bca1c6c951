// Tasks and fibers: where they pause, which exceptions they throw, and that they are freed.
#include "bench/nccl/cpu_device/coroutine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pacecar::coroutine_test {
namespace {

using nccl::cpu::Fiber;
using nccl::cpu::pause;
using nccl::cpu::Task;

using Log = std::vector<std::string>;

// Pauses `pauses` times at each depth, on the way down and on the way up.
Task descend(Log& log, int depth, int pauses) {
  for (int i = 0; i < pauses; ++i) {
    log.push_back("down " + std::to_string(depth));
    co_await pause();
  }
  if (depth > 0) co_await descend(log, depth - 1, pauses);
  for (int i = 0; i < pauses; ++i) {
    log.push_back("up " + std::to_string(depth));
    co_await pause();
  }
}

TEST(Fiber, BeginsWithItsFirstAdvance) {
  Log log;
  Fiber fiber(descend(log, 0, 1));
  EXPECT_TRUE(log.empty());
  EXPECT_FALSE(fiber.ended());
  fiber.advance();
  EXPECT_EQ(log, Log{"down 0"});
}

TEST(Fiber, RunsFromPauseToPauseHoweverDeep) {
  Log log;
  Fiber fiber(descend(log, 2, 2));
  const Log expected{"down 2", "down 2", "down 1", "down 1", "down 0", "down 0",
                     "up 0",   "up 0",   "up 1",   "up 1",   "up 2",   "up 2"};
  for (size_t turns = 1; turns <= expected.size(); ++turns) {
    fiber.advance();
    EXPECT_EQ(log.size(), turns);
    EXPECT_FALSE(fiber.ended());
  }
  fiber.advance();
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(log, expected);
}

Task nothing() { co_return; }

Task many(int tasks, int& ended) {
  for (int i = 0; i < tasks; ++i) {
    co_await nothing();
    ++ended;
  }
}

TEST(Fiber, EndsInOneAdvanceWithoutPauses) {
  constexpr int kTasks = 1000;
  int ended = 0;
  Fiber fiber(many(kTasks, ended));
  fiber.advance();
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(ended, kTasks);
}

TEST(Fiber, ContinuesAfterItWasMoved) {
  Log log;
  std::vector<Fiber> fibers;
  for (int i = 0; i < 5; ++i) {  // the vector grows, and moves fibers that have begun
    fibers.emplace_back(descend(log, 1, 1));
    for (Fiber& fiber : fibers) fiber.advance();
  }
  EXPECT_TRUE(fibers.front().ended());
  EXPECT_FALSE(fibers.back().ended());
}

// --- exceptions ---

struct Stopped {
  int depth;
};

Task throw_below(int depth, bool pauses) {
  if (pauses) co_await pause();
  if (depth == 0) throw Stopped{7};
  co_await throw_below(depth - 1, pauses);
}

TEST(Fiber, ThrowsWhatItsTaskThrows) {
  for (const bool pauses : {false, true}) {
    Fiber fiber(throw_below(3, pauses));
    for (int i = 0; pauses && i < 4; ++i) fiber.advance();
    EXPECT_FALSE(fiber.ended());
    try {
      fiber.advance();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Stopped& stopped) {
      EXPECT_EQ(stopped.depth, 7);
    }
    EXPECT_TRUE(fiber.ended());
  }
}

Task catch_and_continue(Log& log) {
  for (int i = 0; i < 2; ++i) {
    try {
      co_await throw_below(2, true);
      log.push_back("not reached");
    } catch (const Stopped&) {
      log.push_back("caught");
    }
    co_await pause();
    log.push_back("continued");
  }
}

TEST(Task, CatchesWhatAnAwaitedTaskThrows) {
  Log log;
  Fiber fiber(catch_and_continue(log));
  while (!fiber.ended()) fiber.advance();
  EXPECT_EQ(log, (Log{"caught", "continued", "caught", "continued"}));
}

// --- destruction ---

// Counts the living objects of this class.
class Counted {
 public:
  explicit Counted(int& living) : living_(living) { ++living_; }
  Counted(const Counted& other) : living_(other.living_) { ++living_; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --living_; }

 private:
  int& living_;
};

Task hold(Counted argument, int& living, int depth) {
  const auto local = std::make_unique<Counted>(argument);
  co_await pause();
  if (depth > 0) co_await hold(argument, living, depth - 1);
  co_await pause();
}

TEST(Fiber, DestroyedAtAnyPauseFreesAll) {
  constexpr int kDepth = 3;
  constexpr int kPauses = 2 * (kDepth + 1);
  for (int turns = 0; turns <= kPauses + 1; ++turns) {
    int living = 0;
    {
      Fiber fiber(hold(Counted(living), living, kDepth));
      for (int i = 0; i < turns; ++i) fiber.advance();
      EXPECT_EQ(fiber.ended(), turns == kPauses + 1);
      EXPECT_GT(living, 0);
    }
    EXPECT_EQ(living, 0) << turns << " turns";
  }
}

TEST(Task, NeverBegunFreesItsArguments) {
  int living = 0;
  { const Task unused = hold(Counted(living), living, 1); }
  EXPECT_EQ(living, 0);
}

TEST(Fiber, FreesAllWhenItsTaskThrows) {
  int living = 0;
  const auto fails = [](int& count) -> Task {
    const Counted local(count);
    co_await throw_below(2, true);
  };
  {
    Fiber fiber(fails(living));
    for (int i = 0; i < 3; ++i) fiber.advance();
    EXPECT_EQ(living, 1);
    EXPECT_THROW(fiber.advance(), Stopped);
    EXPECT_EQ(living, 0);
  }
  EXPECT_EQ(living, 0);
}

// --- fibers in fibers ---

// Advances its own fibers in turn, and pauses between the rounds, as a block does for its
// transfers.
Task in_turns(Log& log, std::string name, int fibers, int depth) {
  std::vector<Fiber> inner;
  for (int i = 0; i < fibers; ++i) {
    inner.emplace_back(depth > 0 ? in_turns(log, name + std::to_string(i), fibers, depth - 1)
                                 : descend(log, i, 1));
  }
  for (bool ended = false; !ended;) {
    ended = true;
    for (Fiber& fiber : inner) {
      if (!fiber.ended()) fiber.advance();
      ended = ended && fiber.ended();
    }
    log.push_back("round of " + name);
    if (!ended) co_await pause();
  }
}

TEST(Fiber, InsideAnotherPausesOnlyItself) {
  Log log;
  Fiber fiber(in_turns(log, "f", 2, 0));
  fiber.advance();
  EXPECT_EQ(log, (Log{"down 0", "down 1", "round of f"}));
  log.clear();
  fiber.advance();
  EXPECT_EQ(log, (Log{"up 0", "down 0", "round of f"}));
}

TEST(Fiber, InsideFibersInsideFibersAllEnd) {
  Log log;
  std::vector<Fiber> outer;
  for (int i = 0; i < 3; ++i) outer.emplace_back(in_turns(log, "o" + std::to_string(i), 2, 2));
  for (bool ended = false; !ended;) {
    ended = true;
    for (Fiber& fiber : outer) {
      if (!fiber.ended()) fiber.advance();
      ended = ended && fiber.ended();
    }
  }
  // Each of the 3 x 2 x 2 tasks at the bottom descends once by 0 and once by 1.
  EXPECT_EQ(std::ranges::count(log, "down 0"), 24);
  EXPECT_EQ(std::ranges::count(log, "up 1"), 12);
}

Task pass_on(Log& log) {
  Fiber inner(throw_below(1, true));
  try {
    for (;;) {
      inner.advance();
      co_await pause();
    }
  } catch (const Stopped&) {
    log.push_back("of the inner fiber");
  }
  co_await pause();  // still pauses the outer fiber
  log.push_back("ended");
}

TEST(Fiber, ThrowsIntoTheOneThatAdvancesIt) {
  Log log;
  Fiber fiber(pass_on(log));
  while (!fiber.ended()) fiber.advance();
  EXPECT_EQ(log, (Log{"of the inner fiber", "ended"}));
}

TEST(Fiber, DestroysTheUnfinishedOnesInside) {
  int living = 0;
  const auto outer = [](int& count) -> Task {
    std::vector<Fiber> inner;
    for (int i = 0; i < 3; ++i) inner.emplace_back(hold(Counted(count), count, i));
    for (;;) {
      for (Fiber& fiber : inner) {
        if (!fiber.ended()) fiber.advance();
      }
      co_await pause();
    }
  };
  {
    Fiber fiber(outer(living));
    for (int i = 0; i < 4; ++i) fiber.advance();
    EXPECT_GT(living, 0);
  }
  EXPECT_EQ(living, 0);
}

}  // namespace
}  // namespace pacecar::coroutine_test
