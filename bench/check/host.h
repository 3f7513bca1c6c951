// The host of one rule: NCCL's player with its place among the processes of a trial.
#pragma once

#include <string_view>

#include "bench/check/trial.h"
#include "net_plugin/host/host.h"

namespace pacecar::check {

using nccl::Buffer;
using nccl::Ends;
using nccl::expect;
using nccl::expect_success;
using nccl::Listening;
using nccl::Part;
using nccl::poll_until;
using nccl::Subject;

class Host : public nccl::Host {
 public:
  Host(Arena& arena, const Subject& subject, int rank);

  int rank() const { return rank_; }
  // Rank 1's sending end, rank 0's receiving one.
  void* connect_ranks();
  // For several connections of that kind: rank 0's listeners, whose handles rank 1 knows then.
  std::vector<Listening> listen_for_ranks(size_t count);
  // This rank's end of a connection by the listener of that number.
  void* join_ranks(const std::vector<Listening>& listening, size_t number) const;
  void close_rank(void* comm) const { rank_ == 0 ? close_receive(comm) : close_send(comm); }
  // `body` over a connection of the process to itself, which is closed when the body is done with
  // its memory.
  template <typename Body>
  void over_connection(const Body& body) {
    start();
    const Ends ends = connect_self();
    body(ends);
    close(ends);
  }

  // --- the other process ---
  void barrier();
  [[noreturn]] void die();  // as a process that is killed
  void note(std::string_view text) { arena_.note.set(text); }

 private:
  Arena& arena_;
  const int rank_;
};

}  // namespace pacecar::check
