#include "bench/check/trial.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "bench/perf/clock.h"

namespace pacecar::check {
namespace {

using perf::steady_now;

constexpr useconds_t kLookEveryUs = 1000;
// How long the other processes may run on after one has failed, to report why.
constexpr Duration kGrace = Duration::from_s(1);

[[noreturn]] void run_rank(Arena& arena, int rank, const std::function<void(Arena&, int)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = EXIT_SUCCESS;
  try {
    body(arena, rank);
    ++arena.finished;
  } catch (const NotOffered& reason) {
    arena.not_offered.set(reason.what());
    status = EXIT_FAILURE;
  } catch (const std::exception& reason) {
    arena.violation.set(reason.what());
    status = EXIT_FAILURE;
  }
  std::_Exit(status);
}

std::vector<pid_t> start_ranks(Arena& arena, int count,
                               const std::function<void(Arena&, int)>& body) {
  std::vector<pid_t> running;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_rank(arena, rank, body);
    if (child < 0) {
      arena.violation.set(fmt::format("cannot start a process ({}): raise the limit of processes",
                                      std::strerror(errno)));
      break;
    }
    running.push_back(child);
  }
  return running;
}

// Removes processes that have ended. False if one of them has failed.
bool reap(Arena& arena, std::vector<pid_t>& running) {
  bool well = true;
  std::erase_if(running, [&](pid_t child) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) != child) return false;
    // A rule may kill its own process (Host::die).
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
      arena.violation.set(fmt::format("it crashes: {}", strsignal(WTERMSIG(status))));
      well = false;
    } else if (WIFEXITED(status) && WEXITSTATUS(status) != EXIT_SUCCESS) {
      well = false;
    }
    return true;
  });
  return well;
}

void wait_for(Arena& arena, std::vector<pid_t> running, Duration limit) {
  Instant deadline = steady_now() + limit;
  bool failed = false;
  while (!running.empty() && steady_now() < deadline) {
    if (!reap(arena, running) && !failed) {
      failed = true;
      deadline = std::min(deadline, steady_now() + kGrace);
    }
    usleep(kLookEveryUs);
  }
  if (!running.empty() && !failed) {
    arena.violation.set(fmt::format("it hangs: no end after {:.0f} s", limit.seconds()));
  }
  for (const pid_t child : running) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

Outcome outcome_of(Arena& arena, int ranks) {
  const std::string warning(arena.warning.get());
  // When a rule does not apply, one rank ends, and the failure of the other does not count.
  if (!arena.not_offered.get().empty()) {
    return {Verdict::kNotOffered, std::string(arena.not_offered.get())};
  }
  if (arena.finished != ranks) arena.violation.set("it ends the process");
  if (arena.violation.get().empty()) return {Verdict::kPass, std::string(arena.note.get())};
  const std::string why(arena.violation.get());
  return {Verdict::kFail,
          warning.empty() ? why : fmt::format("{} (its log says: {})", why, warning)};
}

}  // namespace

Outcome run_trial(int ranks, Duration limit, const std::function<void(Arena&, int)>& body) {
  void* const pages =
      mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return {Verdict::kFail, fmt::format("no shared memory: {}", std::strerror(errno))};
  }
  Arena* const arena = new (pages) Arena;
  std::fflush(nullptr);
  wait_for(*arena, start_ranks(*arena, ranks, body), limit);
  Outcome outcome = outcome_of(*arena, ranks);
  munmap(pages, sizeof(Arena));
  return outcome;
}

}  // namespace pacecar::check
