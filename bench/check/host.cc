#include "bench/check/host.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace pacecar::check {

Host::Host(Arena& arena, const Subject& subject, int rank)
    : nccl::Host(subject,
                 [&arena](nccl::LogSeverity severity, const char* line) {
                   if (severity == nccl::LogSeverity::kWarn) arena.warning.set(line);
                 }),
      arena_(arena),
      rank_(rank) {}

void* Host::connect_ranks() {
  const std::vector<Listening> listening = listen_for_ranks(1);
  void* const comm = join_ranks(listening, 0);
  for (const Listening& one : listening) close_listen(one.comm);
  return comm;
}

std::vector<Listening> Host::listen_for_ranks(size_t count) {
  start();
  std::vector<Listening> listening;
  for (size_t i = 0; i < count && rank_ == 0; ++i) {
    listening.push_back(listen());
    arena_.handles[i] = listening.back().handle;
  }
  barrier();
  return listening;
}

void* Host::join_ranks(const std::vector<Listening>& listening, size_t number) const {
  return rank_ == 0 ? accept(listening[number].comm) : connect(arena_.handles[number]);
}

void Host::barrier() {
  const uint32_t round = arena_.barrier_round.load();
  if (arena_.arrived.fetch_add(1) + 1 == kMaxRanks) {
    arena_.arrived.store(0);
    arena_.barrier_round.store(round + 1);
    return;
  }
  poll_until("the other process", [&] { return arena_.barrier_round.load() != round; });
}

void Host::die() {
  ++arena_.finished;
  kill(getpid(), SIGKILL);
  std::abort();
}

}  // namespace pacecar::check
