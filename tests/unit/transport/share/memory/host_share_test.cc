// The table in shared memory, with real processes: killed, stopped, of other users, many at once.
#include "transport/share/memory/host_share.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "tests/support/monotonic_now.h"
#include "tests/support/scratch_directory.h"
#include "transport/base/check.h"
#include "transport/base/prng.h"

namespace pacecar::host_share_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr Rate kLink = Rate::from_gbps(100);
constexpr std::string_view kName = "eth0-1";
constexpr Duration kPatience = Duration::from_s(20);

// A temporary directory in memory, where the table must be.
class SharedScratch {
 public:
  SharedScratch() {
    std::string name = "/dev/shm/pacecar-test.XXXXXX";
    PACECAR_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~SharedScratch() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string file() const {
    for (const auto& entry : fs::directory_iterator(path_)) return entry.path();
    return {};
  }

 private:
  fs::path path_;
};

struct Report {
  std::atomic<uint64_t> part;
  std::atomic<uint64_t> polls;
  std::atomic<uint64_t> failed;
};

// Child processes that poll; each reports its part in shared memory.
class Children {
 public:
  explicit Children(std::string directory) : directory_(std::move(directory)) {
    void* const memory = mmap(nullptr, sizeof(Report) * kMost, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PACECAR_CHECK(memory != MAP_FAILED);
    reports_ = static_cast<Report*>(memory);
  }
  ~Children() {
    for (size_t i = 0; i < pids_.size(); ++i) kill_one(i);
    munmap(reports_, sizeof(Report) * kMost);
  }

  void start(size_t number, const LinkClaim& claim) {
    if (number >= pids_.size()) pids_.resize(number + 1);
    reports_[number].part = reports_[number].polls = 0;
    pids_[number] = fork();
    PACECAR_CHECK(pids_[number] >= 0);
    if (pids_[number] == 0) work(reports_[number], claim);
  }
  void kill_one(size_t number) {
    if (pids_[number] == 0) return;
    kill(pids_[number], SIGKILL);
    waitpid(pids_[number], nullptr, 0);
    pids_[number] = 0;
    reports_[number].part = 0;
  }
  void signal(size_t number, int what) { kill(pids_[number], what); }
  pid_t pid(size_t number) const { return pids_[number]; }
  Report& report(size_t number) { return reports_[number]; }
  double gbps(size_t number) const {
    return static_cast<double>(reports_[number].part.load()) * 1e-9;
  }

  static constexpr size_t kMost = 80;

 private:
  [[noreturn]] void work(Report& report, const LinkClaim& claim) {
    auto share = HostShare::open(kName, kLink, test::monotonic_now(), directory_);
    if (!share) {
      report.failed = 1;
      _exit(1);
    }
    HostLink& link = (*share)->outgoing();
    link.claim(test::monotonic_now(), claim);
    for (;;) {
      const Instant now = test::monotonic_now();
      if (link.due(now)) link.claim(now, claim);
      report.part = link.part().bps();
      ++report.polls;
      const timespec pause{0, 100'000};
      ppoll(nullptr, 0, &pause, nullptr);
    }
  }

  const std::string directory_;
  Report* reports_;
  std::vector<pid_t> pids_;
};

bool eventually(const std::function<bool()>& holds) {
  const Instant end = test::monotonic_now() + kPatience;
  while (!holds()) {
    if (test::monotonic_now() > end) return false;
    const timespec pause{0, 200'000};
    ppoll(nullptr, 0, &pause, nullptr);
  }
  return true;
}

LinkClaim full() { return {.demand = kLink, .weight = 1, .ready = true}; }

bool about(double value, double wanted) { return value > wanted * 0.96 && value < wanted * 1.04; }

// The exit status of a child that does `what`.
int in_child(const std::function<int()>& what) {
  const pid_t child = fork();
  if (child == 0) _exit(what());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ShareProcesses, KilledProcessBlocksNoOther) {
  const SharedScratch scratch;
  Children children(scratch.path());
  constexpr size_t kCount = 4;
  for (size_t i = 0; i < kCount; ++i) children.start(i, full());
  Prng prng(7);
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(eventually([&] {
      for (size_t i = 0; i < kCount; ++i) {
        if (!about(children.gbps(i), 25)) return false;
      }
      return true;
    })) << "round "
        << round;
    const size_t victim = prng.below(kCount);
    const timespec pause{0, static_cast<long>(prng.below(300'000))};
    ppoll(nullptr, 0, &pause, nullptr);
    children.kill_one(victim);
    const size_t other = (victim + 1) % kCount;
    ASSERT_TRUE(eventually([&] { return about(children.gbps(other), 100.0 / 3); }))
        << "round " << round << ", has " << children.gbps(other);
    children.start(victim, full());
  }
}

// Children are killed just after their start, while they open and join.
TEST(ShareProcesses, ProcessKilledWhileJoiningLeavesAValidTable) {
  Prng prng(11);
  for (int round = 0; round < 60; ++round) {
    const SharedScratch scratch;
    Children children(scratch.path());
    for (size_t i = 0; i < 4; ++i) children.start(i, full());
    const timespec pause{0, static_cast<long>(prng.below(1'500'000))};
    ppoll(nullptr, 0, &pause, nullptr);
    for (size_t i = 0; i < 3; ++i) children.kill_one(i);
    ASSERT_TRUE(eventually([&] { return about(children.gbps(3), 100); })) << "round " << round;
    EXPECT_EQ(children.report(3).failed.load(), 0U);
  }
}

TEST(ShareProcesses, StoppedProcessLosesItsPartAndGetsItBack) {
  const SharedScratch scratch;
  Children children(scratch.path());
  for (size_t i = 0; i < 2; ++i) children.start(i, full());
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(
        eventually([&] { return about(children.gbps(0), 50) && about(children.gbps(1), 50); }));
    children.signal(0, SIGSTOP);
    ASSERT_TRUE(eventually([&] { return about(children.gbps(1), 100); }));
    children.signal(0, SIGCONT);
  }
}

TEST(ShareProcesses, SixtyFourProcessesShareAndTheNextIsRefusedUntilOneEnds) {
  const SharedScratch scratch;
  Children children(scratch.path());
  for (size_t i = 0; i < kShareSlots; ++i) children.start(i, full());
  ASSERT_TRUE(eventually([&] {
    for (size_t i = 0; i < kShareSlots; ++i) {
      if (!about(children.gbps(i), 100.0 / kShareSlots)) return false;
    }
    return true;
  }));
  const auto open = [&] {
    return HostShare::open(kName, kLink, test::monotonic_now(), scratch.path());
  };
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  const auto sharers = link_sharers(kName, test::monotonic_now(), scratch.path());
  ASSERT_TRUE(sharers);
  EXPECT_EQ(sharers->size(), kShareSlots);
  children.kill_one(17);
  EXPECT_TRUE(open());
}

TEST(ShareMemory, SharersOfALinkAreListed) {
  const SharedScratch scratch;
  EXPECT_FALSE(link_sharers(kName, test::monotonic_now(), scratch.path()));
  Children children(scratch.path());
  children.start(0, {.demand = Rate::from_gbps(10), .weight = 3, .ready = true});
  Result<std::vector<LinkSharer>> sharers;
  // A sharer lives if it has polled recently; it takes its part some polls after its first.
  ASSERT_TRUE(eventually([&] {
    sharers = link_sharers(kName, test::monotonic_now(), scratch.path());
    if (!sharers || sharers->size() != 1) return false;
    const auto& sending = sharers->front().directions[0];
    return sending.lives && sending.taking == kLink;
  }));
  const LinkSharer& sharer = sharers->front();
  EXPECT_EQ(sharer.process, children.pid(0));
  EXPECT_FALSE(sharer.hidden);
  EXPECT_THAT(std::string(program_invocation_short_name), HasSubstr(sharer.program));
  EXPECT_EQ(sharer.program.size(), std::min<size_t>(16, strlen(program_invocation_short_name)));
  EXPECT_EQ(sharer.directions[0].claim.demand, Rate::from_gbps(10));
  EXPECT_EQ(sharer.directions[0].claim.weight, 3U);
  EXPECT_EQ(sharer.directions[0].part(), Rate::from_gbps(10)) << "a part is at most the demand";
  EXPECT_TRUE(sharer.directions[0].lives);
  EXPECT_FALSE(sharer.directions[1].lives);
}

TEST(ShareMemory, ForkedChildDoesNotChangeItsParentsSlot) {
  const SharedScratch scratch;
  auto share = HostShare::open(kName, kLink, test::monotonic_now(), scratch.path());
  ASSERT_TRUE(share);
  (*share)->outgoing().claim(test::monotonic_now(), full());
  EXPECT_EQ(in_child([&] {
              (*share)->outgoing().claim(test::monotonic_now(), {});
              share->reset();
              return 0;
            }),
            0);
  const auto sharers = link_sharers(kName, test::monotonic_now(), scratch.path());
  ASSERT_TRUE(sharers);
  ASSERT_EQ(sharers->size(), 1U);
  EXPECT_EQ(sharers->front().directions[0].taking, kLink);
}

TEST(ShareMemory, AnotherUserCannotOpenTheTable) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const SharedScratch scratch;
  ASSERT_TRUE(HostShare::open(kName, kLink, test::monotonic_now(), scratch.path()));
  const std::string file = scratch.file();
  EXPECT_EQ(in_child([&] {
              if (setgid(65534) != 0 || setuid(65534) != 0) return 1;
              const auto share =
                  HostShare::open(kName, kLink, test::monotonic_now(), scratch.path());
              if (share || share.error().code != ErrorCode::kPermission) return 2;
              return open(file.c_str(), O_RDONLY) < 0 && errno == EACCES ? 0 : 3;
            }),
            0);
  // A table of another user is refused.
  ASSERT_EQ(chown(scratch.path().c_str(), 65534, 65534), 0);
  const auto theirs = HostShare::open(kName, kLink, test::monotonic_now(), scratch.path());
  ASSERT_FALSE(theirs);
  EXPECT_EQ(theirs.error().code, ErrorCode::kPermission);
}

class ShareFile : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(open_share_memory(scratch_.path(), kName));
    file_ = scratch_.file();
  }
  Error refusal() {
    auto memory = open_share_memory(scratch_.path(), kName);
    return memory ? Error{ErrorCode::kInternal, "it was opened"} : memory.error();
  }

  const SharedScratch scratch_;
  std::string file_;
};

TEST_F(ShareFile, EmptyFileBecomesATable) {
  fs::resize_file(file_, 0);
  EXPECT_TRUE(open_share_memory(scratch_.path(), kName));
  EXPECT_EQ(fs::file_size(file_), sizeof(ShareTable));
}

TEST_F(ShareFile, FileOfAnotherSizeIsRefused) {
  fs::resize_file(file_, 100);
  EXPECT_EQ(refusal().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refusal().message, HasSubstr("is no table of links: remove it"));
}

TEST_F(ShareFile, FileThatOthersMayReadIsRefused) {
  ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
  EXPECT_EQ(refusal().code, ErrorCode::kPermission);
}

TEST_F(ShareFile, ASymbolicLinkIsRefused) {
  fs::rename(file_, file_ + "x");
  fs::create_symlink(file_ + "x", file_);
  EXPECT_EQ(refusal().code, ErrorCode::kSystem);
}

TEST_F(ShareFile, PipeIsRefusedWithoutBlocking) {
  fs::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_EQ(refusal().code, ErrorCode::kInvalidArgument);
}

TEST_F(ShareFile, ADirectoryThatOthersMayEnterIsRefused) {
  ASSERT_EQ(chmod(scratch_.path().c_str(), 0755), 0);
  EXPECT_EQ(refusal().code, ErrorCode::kPermission);
  ASSERT_EQ(chmod(scratch_.path().c_str(), 0700), 0);
}

TEST_F(ShareFile, ADirectoryThatIsALinkIsRefused) {
  const std::string link = scratch_.path() + "/link";
  fs::create_symlink(scratch_.path(), link);
  EXPECT_FALSE(open_share_memory(link, kName));
}

TEST_F(ShareFile, FileOnADiskIsRefused) {
  const test::ScratchDirectory disk;
  const auto memory = open_share_memory(disk.path() / "share", kName);
  if (memory) GTEST_SKIP() << "temporary files are in memory here";
  EXPECT_THAT(memory.error().message, HasSubstr("is not in memory"));
}

// Tables that no process has mapped are leftovers, as of killed processes and network namespaces
// that are gone.
class UnusedTables : public testing::Test {
 protected:
  // As many dead tables, of a process that was killed.
  void leave(size_t count) {
    hold("killed");
    const std::string table = scratch_.file();
    kill(holders_.back(), SIGKILL);
    waitpid(holders_.back(), nullptr, 0);
    holders_.pop_back();
    for (size_t i = 1; i < count; ++i) fs::copy_file(table, fmt::format("{}{}", table, i));
    ASSERT_EQ(tables(), count);
  }
  // By a process that lives until the end of the test.
  void hold(const std::string& link) {
    holders_.push_back(fork());
    if (holders_.back() == 0) {
      const auto share = HostShare::open(link, kLink, test::monotonic_now(), path());
      raise(SIGSTOP);
      for (;;) pause();
    }
    waitpid(holders_.back(), nullptr, WUNTRACED);
  }
  void TearDown() override {
    for (const pid_t holder : holders_) {
      kill(holder, SIGKILL);
      waitpid(holder, nullptr, 0);
    }
  }
  std::string path() const { return scratch_.path(); }
  size_t tables() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path()), {}));
  }

  const SharedScratch scratch_;
  std::vector<pid_t> holders_;
};

TEST_F(UnusedTables, AreRemovedByTheNextProcess) {
  leave(600);
  hold("stopped");
  hold("running");
  kill(holders_.back(), SIGCONT);
  ASSERT_TRUE(HostShare::open(kName, kLink, test::monotonic_now(), path()));
  EXPECT_EQ(tables(), 3U);
  EXPECT_TRUE(find_share_memory(path(), "stopped"));
  EXPECT_TRUE(find_share_memory(path(), "running"));
  EXPECT_TRUE(find_share_memory(path(), kName)) << "its own";
}

TEST_F(UnusedTables, OfATwinOfTheProcessAreNot) {
  const auto own = HostShare::open("own", kLink, test::monotonic_now(), path());
  ASSERT_TRUE(own);
  ASSERT_TRUE(HostShare::open(kName, kLink, test::monotonic_now(), path()));
  EXPECT_TRUE(find_share_memory(path(), "own"));
}

TEST_F(UnusedTables, WhatIsNoTableOfThisUserStays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of another user";
  ASSERT_TRUE(open_share_memory(path(), "theirs"));
  const fs::path theirs = *fs::directory_iterator(path());
  ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
  fs::create_directory(theirs.string() + "-directory");
  fs::create_symlink(theirs, theirs.string() + "-symlink");
  std::ofstream(fs::path(path()) / "notes") << "of the user";
  ASSERT_TRUE(open_share_memory(path(), kName));
  ASSERT_TRUE(open_share_memory(path(), "next"));
  EXPECT_EQ(tables(), 5U) << "these four, and the next process's";
}

// A table must not be removed between a process's opening it and its use. Each child opens tables
// that the others are about to remove, and looks whether the name is still that of its own.
TEST_F(UnusedTables, RemovalDoesNotMeetAProcessThatBegins) {
  constexpr size_t kChildren = 4;
  std::vector<pid_t> children;
  for (size_t child = 0; child < kChildren; ++child) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    for (uint64_t round = 1; round < 1'500; ++round) {
      const auto link = fmt::format("link{}", (round + child) % 2);
      const auto own = open_share_memory(path(), link);
      if (!own) _exit(1);
      (*own)->slots[child].owner = round;
      const auto named = find_share_memory(path(), link);
      if (!named || (*named)->slots[child].owner != round) _exit(2);
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(LiveProcess, EndedProcessIsRecognised) {
  const auto self = LiveProcess::make();
  ASSERT_TRUE(self);
  const uint64_t own = (*self)->owner();
  EXPECT_EQ(OwnerWord::decode(own).process, getpid());
  EXPECT_FALSE((*self)->ended(own));
  OwnerWord other = OwnerWord::decode(own);
  // The same process number with another start time.
  other.start ^= 1;
  EXPECT_TRUE((*self)->ended(other.encode()));
  other.process_namespace ^= 1;
  EXPECT_TRUE((*self)->hidden(other.encode()));
  EXPECT_FALSE((*self)->ended(other.encode()));
  const pid_t child = fork();
  if (child == 0) _exit((*self)->owner() == 0 ? 0 : 1);
  OwnerWord dead = OwnerWord::decode(own);
  dead.process = child;
  siginfo_t information{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE((*self)->ended(dead.encode()));  // although its parent has not reaped it yet
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE((*self)->ended(dead.encode()));
}

}  // namespace
}  // namespace pacecar::host_share_test
