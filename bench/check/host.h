// The rules on which NCCL relies in a net plugin, and the host that plays NCCL in one process of a
// rule's trial.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "bench/check/trial.h"
#include "bench/perf/pattern.h"
#include "net_plugin/host/buffer.h"

namespace pacecar::check {

using nccl::Buffer;
using nccl::Ends;
using nccl::expect;
using nccl::expect_success;
using nccl::Listening;
using nccl::Part;
using nccl::poll_until;
using nccl::Subject;

inline int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

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
// Thread rule: as for nccl::Host.
class Host : public nccl::Host {
 public:
  Host(Arena& arena, const Subject& subject, int rank)
      : nccl::Host(subject,
                   [&arena](nccl::LogSeverity severity, const char* line) {
                     if (severity == nccl::LogSeverity::kWarn) arena.warning.set(line);
                   }),
        arena_(arena),
        rank_(rank) {}

  int rank() const { return rank_; }
  // Connections between the ranks: rank 0 listens, and rank 1 gets the handles.
  std::vector<Listening> listen_for_ranks(size_t count) {
    start();
    std::vector<Listening> listening;
    for (size_t i = 0; i < count && rank_ == 0; ++i) {
      listening.push_back(listen());
      arena_.handles[i] = listening.back().handle;
    }
    barrier();
    return listening;
  }
  // This rank's end of a connection through that listener: rank 1's sends, rank 0's receives.
  void* join_ranks(const std::vector<Listening>& listening, size_t number) const {
    return rank_ == 0 ? accept(listening[number].comm) : connect(arena_.handles[number]);
  }
  void close_listens(const std::vector<Listening>& listening) const {
    for (const Listening& one : listening) close_listen(one.comm);
  }
  // One connection between the ranks.
  void* connect_ranks() {
    const std::vector<Listening> listening = listen_for_ranks(1);
    void* const comm = join_ranks(listening, 0);
    close_listens(listening);
    return comm;
  }
  // One call for this rank's end.
  nccl::NcclResult post_rank(void* comm, const Part& part, void** request) const {
    return rank_ == 0 ? post_receive(comm, std::span(&part, 1), request)
                      : post_send(comm, part, request);
  }
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

  // Waits for the other process.
  void barrier() {
    const uint32_t round = arena_.barrier_round.load();
    if (arena_.arrived.fetch_add(1) + 1 == kMaxRanks) {
      arena_.arrived.store(0);
      arena_.barrier_round.store(round + 1);
      return;
    }
    poll_until("the other process", [&] { return arena_.barrier_round.load() != round; });
  }
  // Kills this process.
  [[noreturn]] void die() {
    ++arena_.finished;
    kill(getpid(), SIGKILL);
    std::abort();
  }
  void note(std::string_view text) { arena_.note.set(text); }

 private:
  Arena& arena_;
  const int rank_;
};

struct Rule {
  std::string_view name;      // for --only
  std::string_view sentence;  // what a plugin must do
  void (*check)(Host& host);  // throws NotOffered or nccl::HostError
  int ranks = 1;              // processes that run `check` at once, each with a Host
};

std::span<const Rule> connection_rules();
std::span<const Rule> transfer_rules();

}  // namespace pacecar::check
