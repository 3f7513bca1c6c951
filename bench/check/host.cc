#include "bench/check/host.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace pacecar::check {

Host::Host(Arena& arena, const Subject& subject, int rank)
    : nccl::Host(subject,
                 [&arena](nccl::LogSeverity severity, const char* line) {
                   if (severity == nccl::LogSeverity::kWarn) arena.said.set(line);
                 }),
      arena_(arena),
      rank_(rank) {}

void* Host::connect_ranks() {
  start();
  if (rank_ == 0) {
    const Listening listening = listen();
    arena_.handles[0] = listening.handle;
    barrier();
    void* const comm = accept(listening.comm);
    close_listen(listening.comm);
    return comm;
  }
  barrier();
  return connect(arena_.handles[0]);
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
