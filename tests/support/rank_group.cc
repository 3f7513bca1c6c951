#include "tests/support/rank_group.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include "tests/support/waiting.h"

namespace pacecar::test {
namespace {

constexpr int kMaxRanks = 8;

struct Letter {
  std::atomic<bool> present{false};
  HandleBytes handle{};
};

}  // namespace

// In memory that all ranks share.
class Board {
 public:
  Letter& letter(int from, int to) { return letters_[from][to]; }

  void barrier(int size) {
    const int round = round_.load();
    if (arrived_.fetch_add(1) + 1 == size) {
      arrived_.store(0);
      round_.store(round + 1);
      return;
    }
    poll_until("another rank", [&] { return round_.load() != round; });
  }

 private:
  Letter letters_[kMaxRanks][kMaxRanks];
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
};

namespace {

Board* new_board() {
  void* const pages =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw HostError("mmap failed");
  return new (pages) Board;
}

void run_rank(Board& board, int rank, int size, const RankBody& body) {
  Rank self(board, rank, size);
  try {
    body(self);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

[[noreturn]] void run_child(Board& board, int rank, int size, const RankBody& body) {
  alarm(kCaseHangs.count());
  run_rank(board, rank, size, body);
  const bool failed = ::testing::Test::HasFailure();
  if (failed) {
    for (const LogLine& line : logged_lines())
      std::printf("rank %d: %s\n", rank, line.text.c_str());
  }
  std::exit(failed ? 1 : 0);
}

}  // namespace

void Rank::give(int peer, const HandleBytes& handle) {
  Letter& letter = board_.letter(rank_, peer);
  poll_until("an earlier handle", [&] { return !letter.present.load(); });
  letter.handle = handle;
  letter.present.store(true);
}

HandleBytes Rank::take(int peer) {
  Letter& letter = board_.letter(peer, rank_);
  poll_until("a handle", [&] { return letter.present.load(); });
  const HandleBytes handle = letter.handle;
  letter.present.store(false);
  return handle;
}

void Rank::barrier() { board_.barrier(size_); }

std::vector<int> run_processes(int size, const RankBody& body) {
  Board* const board = new_board();
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(*board, rank, size, body);
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) waitpid(child, &statuses.emplace_back(), 0);
  munmap(board, sizeof(Board));
  return statuses;
}

void expect_processes_pass(int size, const RankBody& body) {
  const std::vector<int> statuses = run_processes(size, body);
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_EQ(statuses[rank], 0) << "wait status of rank " << rank;
  }
}

void expect_threads_pass(int size, const RankBody& body) {
  expect_processes_pass(1, [&](Rank&) {
    Board* const board = new_board();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] { run_rank(*board, rank, size, body); });
    }
    for (std::thread& rank : ranks) rank.join();
    munmap(board, sizeof(Board));
  });
}

}  // namespace pacecar::test
