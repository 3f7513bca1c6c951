#include "bench/check/trial.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <vector>

#include "bench/cli/child.h"
#include "bench/cli/clock.h"
#include "transport/base/printable.h"

namespace pacecar::check {
namespace {

using cli::steady_now;

constexpr useconds_t kLookEveryUs = 1000;
// How long the other processes may run on after one has failed, to report why.
constexpr Duration kGrace = Duration::from_s(1);

int run_rank(Arena& arena, int rank, const std::function<void(Arena&, int)>& body) {
  try {
    body(arena, rank);
    ++arena.finished;
    return EXIT_SUCCESS;
  } catch (const NotOffered& reason) {
    arena.not_offered.set(reason.what());
  } catch (const std::exception& reason) {
    arena.violation.set(reason.what());
  }
  return EXIT_FAILURE;
}

void run_ranks(Arena& arena, int count, Duration limit,
               const std::function<void(Arena&, int)>& body) {
  std::vector<cli::Child> running;
  for (int rank = 0; rank < count; ++rank) {
    auto child = cli::Child::run([&, rank] { return run_rank(arena, rank, body); });
    if (!child) {
      arena.violation.set(child.error().message);
      break;
    }
    running.push_back(std::move(*child));
  }
  Instant deadline = steady_now() + limit;
  bool failed = false;
  while (!running.empty() && steady_now() < deadline) {
    usleep(kLookEveryUs);
    std::erase_if(running, [&](cli::Child& child) {
      const auto status = child.ended();
      child.read();
      if (!status) return false;
      // A rule may kill its own process (Host::die).
      const bool crashed = status->signal != 0 && status->signal != SIGKILL;
      if (crashed) arena.violation.set(fmt::format("it crashes: {}", strsignal(status->signal)));
      if (crashed || status->code != EXIT_SUCCESS) {
        failed = true;
        arena.warning.set(printable(cli::last_lines(child.errors, 1)));
      }
      return true;
    });
    if (failed) deadline = std::min(deadline, steady_now() + kGrace);
  }
  if (!running.empty() && !failed) {
    arena.violation.set(fmt::format("it hangs: no end after {:.0f} s", limit.seconds()));
  }
  for (cli::Child& child : running) child.end(0);
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
  run_ranks(*arena, ranks, limit, body);
  Outcome outcome = outcome_of(*arena, ranks);
  munmap(pages, sizeof(Arena));
  return outcome;
}

}  // namespace pacecar::check
