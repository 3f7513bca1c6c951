// Plays NCCL in one process of a trial, and the rules on which NCCL relies in a net plugin.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bench/check/trial.h"
#include "bench/perf/pattern.h"
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

// A connection of the process to itself, with a buffer of `bytes` at each end.
struct Loop {
  Loop(const nccl::Host& owner, const Ends& both, size_t bytes)
      : host(owner),
        ends(both),
        source(host, ends.send, bytes),
        target(host, ends.receive, bytes) {}

  // Sends the first `sent` bytes of the source to a receive of `posted` bytes; returns the size
  // that the receive reports.
  int pass(size_t sent, size_t posted) const {
    void* const receiving = host.receive(ends.receive, target.part(0, posted));
    return host.finish(receiving, host.send(ends.send, source.part(0, sent)));
  }
  // Sends the whole source, filled with the pattern of this number. Whether it has arrived.
  bool carries(uint64_t number) const {
    perf::fill_pattern(source.bytes(), number);
    pass(source.bytes().size(), source.bytes().size());
    return !perf::find_mismatch(target.bytes(), number);
  }

  const nccl::Host& host;
  const Ends ends;
  Buffer source;
  Buffer target;
};

// nccl::Host with a rank, a barrier and a note. It throws nccl::HostError when a rule is broken.
// Thread rule: nccl::Host's.
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
  // Runs `body(loop)`, and closes the connection afterwards.
  template <typename Body>
  void over_connection(size_t bytes, const Body& body) {
    start();
    const Ends ends = connect_self();
    {
      Loop loop(*this, ends, bytes);
      body(loop);
    }
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

struct Rule {
  std::string_view name;      // for --only
  std::string_view sentence;  // what a plugin must do
  int ranks;                  // processes that run `check` at once, each with a Host
  void (*check)(Host& host);  // throws NotOffered or nccl::HostError
};

std::span<const Rule> setup_rules();
std::span<const Rule> transfer_rules();
std::span<const Rule> stress_rules();

}  // namespace pacecar::check
