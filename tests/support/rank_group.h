// Runs the ranks of a test as processes or as threads, with an exchange of handles and a barrier,
// as NCCL's bootstrap has them.
//
// Processes are forked before the parent has loaded any plugin, because a fork lacks the threads
// of a plugin. An alarm ends a child that hangs.
#pragma once

#include <functional>
#include <vector>

#include "tests/support/fake_nccl_host.h"

namespace pacecar::test {

class Board;

class Rank {
 public:
  Rank(Board& board, int rank, int size) : board_(board), rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int next() const { return (rank_ + 1) % size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }

  // Sends a handle to `peer`; take() waits for the handle from `peer`.
  void give(int peer, const HandleBytes& handle);
  HandleBytes take(int peer);
  // Waits for that rank.
  void meet(int peer) {
    give(peer, {});
    take(peer);
  }
  // Waits for all ranks.
  void barrier();

 private:
  Board& board_;
  int rank_;
  int size_;
};

using RankBody = std::function<void(Rank&)>;

// Returns each process's wait status, as waitpid() gives it.
std::vector<int> run_processes(int size, const RankBody& body);
// Fails the test unless every rank passed.
void expect_processes_pass(int size, const RankBody& body);
void expect_threads_pass(int size, const RankBody& body);

}  // namespace pacecar::test
