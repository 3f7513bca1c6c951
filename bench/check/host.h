// Plays NCCL in one process of a trial: nccl::Host with a rank, a barrier and a note. It throws
// nccl::HostError when a rule is broken. Thread rule: nccl::Host's.
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
  // A connection between the ranks: rank 1's sending end, or rank 0's receiving end.
  void* connect_ranks();
  // For several such connections: rank 0 listens, and rank 1 gets the handles.
  std::vector<Listening> listen_for_ranks(size_t count);
  // This rank's end of a connection through that listener.
  void* join_ranks(const std::vector<Listening>& listening, size_t number) const;
  void close_rank(void* comm) const { rank_ == 0 ? close_receive(comm) : close_send(comm); }
  // Runs `body` over a connection of the process to itself, and closes the connection afterwards.
  template <typename Body>
  void over_connection(const Body& body) {
    start();
    const Ends ends = connect_self();
    body(ends);
    close(ends);
  }

  // --- the other process ---
  void barrier();
  [[noreturn]] void die();  // kills this process
  void note(std::string_view text) { arena_.note.set(text); }

 private:
  Arena& arena_;
  const int rank_;
};

}  // namespace pacecar::check
