#include "bench/nccl/rank_group.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "transport/base/return_if_error.h"

namespace pacecar::nccl {
namespace {

class SharedBoard final : public Board {
 public:
  using Board::Board;
  Result<void> barrier() override {
    const uint32_t round = round_.load();
    if (arrived_.fetch_add(1) + 1 == ranks()) {
      arrived_.store(0);
      round_.store(round + 1);
      return {};
    }
    while (round_.load() == round) {
      RETURN_IF_ERROR(others_are_well());
      sched_yield();
    }
    return {};
  }

  Result<void> others_are_well() override {
    if (abandoned_.load()) return fail(ErrorCode::kPeer, "stopped because another rank failed");
    return {};
  }
  void give_up() { abandoned_.store(true); }

 private:
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> abandoned_{false};
};

void print_error(int rank, const std::string& message) {
  fmt::print(stderr, "rank {}: {}\n", rank, message);
}

[[noreturn]] void run_child(Board& board, int rank, const RankBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // no rank outlives the job
  int status = EXIT_SUCCESS;
  try {
    body(board, rank);
  } catch (const std::exception& error) {
    print_error(rank, error.what());
    status = EXIT_FAILURE;
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

// Waits until any rank ends; true when that rank succeeded.
bool wait_for_one(const std::vector<pid_t>& children) {
  int status = 0;
  const pid_t child = wait(&status);
  if (WIFSIGNALED(status)) {
    const auto rank = std::find(children.begin(), children.end(), child) - children.begin();
    print_error(static_cast<int>(rank), fmt::format("ended by {}", strsignal(WTERMSIG(status))));
  }
  return status == 0;
}

}  // namespace

bool run_ranks(int ranks, const RankBody& body) {
  void* const pages =
      mmap(nullptr, sizeof(SharedBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    fmt::print(stderr, "no shared memory for the ranks: {}\n", std::strerror(errno));
    return false;
  }
  SharedBoard* const board = new (pages) SharedBoard(ranks);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(*board, rank, body);
    if (child < 0) {
      print_error(rank, fmt::format("cannot start: {}", std::strerror(errno)));
      board->give_up();
      break;
    }
    children.push_back(child);
  }

  bool well = children.size() == static_cast<size_t>(ranks);
  for (size_t ended = 0; ended < children.size(); ++ended) {
    if (wait_for_one(children)) continue;
    well = false;
    board->give_up();
  }
  munmap(pages, sizeof(SharedBoard));
  return well;
}

}  // namespace pacecar::nccl
