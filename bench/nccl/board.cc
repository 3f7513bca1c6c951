#include "bench/nccl/board.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/nccl/value_or_throw.h"
#include "bench/perf/clock.h"
#include "bench/perf/control_channel.h"
#include "bench/perf/control_listener.h"
#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::nccl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFigures, seconds, cpu_seconds, wrong, elapsed);

namespace {

using nlohmann::json;

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
    print_error(static_cast<int>(rank), fmt::format("ended by signal {} ({})", WTERMSIG(status),
                                                    strsignal(WTERMSIG(status))));
  }
  return child > 0 && status == 0;
}

constexpr Duration kOneTry = Duration::from_s(1);
constexpr auto kBetweenTries = std::chrono::milliseconds(100);

json entry_of(const Board& board, size_t rank) {
  json note = board.figures[rank];
  note["handle"] = board.handles[rank];
  return note;
}

Result<void> store_entry(const json& note, Board& board, size_t rank) {
  try {
    note.at("handle").get_to(board.handles[rank]);
    note.get_to(board.figures[rank]);
    return {};
  } catch (const json::exception& what) {
    return fail(ErrorCode::kPeer, fmt::format("another rank sent nonsense ({}): run the same "
                                              "version on all hosts",
                                              what.what()));
  }
}

Result<perf::ControlChannel> connect_to_root(const std::string& host, uint16_t port,
                                             Duration limit) {
  const Instant deadline = perf::steady_now() + limit;
  while (true) {
    auto channel = perf::ControlChannel::connect(host, port, kOneTry);
    if (channel || perf::steady_now() > deadline) return channel;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void warn(const Error& why) { fmt::print(stderr, "rank 0: {}\n", why.message); }

// The channels to ranks 1, 2, and so on. Any other caller gets an error.
Result<std::vector<perf::ControlChannel>> await_others(int ranks, const std::string& host,
                                                       uint16_t port) {
  ASSIGN_OR_RETURN(auto listener, perf::ControlListener::open({host}, port));
  std::vector<std::optional<perf::ControlChannel>> joined(static_cast<size_t>(ranks));
  for (size_t left = joined.size() - 1; left > 0;) {
    ASSIGN_OR_RETURN(auto caller, listener.accept("join", warn));
    const auto rank = perf::unsigned_field(caller.greeting, "rank", 1, joined.size() - 1);
    if (!rank || joined[*rank]) {
      const std::string why =
          rank ? fmt::format("there is a rank {} already", *rank) : rank.error().message;
      caller.channel.send_error(why);
      warn({ErrorCode::kPeer, fmt::format("{}: {}", caller.channel.peer(), why)});
      continue;
    }
    joined[*rank] = std::move(caller.channel);
    --left;
  }
  std::vector<perf::ControlChannel> channels;
  for (size_t rank = 1; rank < joined.size(); ++rank) channels.push_back(std::move(*joined[rank]));
  return channels;
}

class RemoteBoard final : public Board {
 public:
  RemoteBoard(const RemoteRank& self, Duration limit)
      : Board(self.ranks), self_(self), limit_(limit) {}

  Result<void> join() {
    if (self_.rank == 0) {
      ASSIGN_OR_RETURN(channels_, await_others(ranks(), self_.root, self_.port));
      return {};
    }
    ASSIGN_OR_RETURN(auto channel, connect_to_root(self_.root, self_.port, limit_));
    RETURN_IF_ERROR(channel.send({{"type", "join"}, {"rank", self_.rank}}));
    channels_.push_back(std::move(channel));
    return {};
  }

  Result<void> barrier() override {
    return self_.rank == 0 ? gather_and_send() : exchange_with_root();
  }
  Result<void> others_are_well() override { return {}; }  // operations with a failed one fail
  // Called before this rank ends with an error: the others' next barrier fails with `why`.
  void give_up(const std::string& why) {
    for (auto& channel : channels_) channel.send_error(why);
  }

 private:
  // Rank 0: gathers all notes, and sends them to all.
  Result<void> gather_and_send() {
    for (size_t i = 0; i < channels_.size(); ++i) {
      ASSIGN_OR_RETURN(const json note, channels_[i].expect("note", limit_));
      RETURN_IF_ERROR(store_entry(note, *this, i + 1));
    }
    json notes = json::array();
    for (size_t i = 0; i < static_cast<size_t>(ranks()); ++i) notes.push_back(entry_of(*this, i));
    for (auto& channel : channels_) {
      RETURN_IF_ERROR(channel.send({{"type", "all"}, {"notes", notes}}));
    }
    return {};
  }

  Result<void> exchange_with_root() {
    perf::ControlChannel& root = channels_.front();
    json note = entry_of(*this, static_cast<size_t>(self_.rank));
    note["type"] = "note";
    RETURN_IF_ERROR(root.send(note));
    ASSIGN_OR_RETURN(const json all, root.expect("all", limit_));
    const json notes = all.value("notes", json::array());
    if (notes.size() != static_cast<size_t>(ranks())) {
      return fail(ErrorCode::kPeer,
                  "rank 0 has another number of ranks: give all the same --ranks");
    }
    for (size_t i = 0; i < notes.size(); ++i) RETURN_IF_ERROR(store_entry(notes[i], *this, i));
    return {};
  }

  const RemoteRank self_;
  const Duration limit_;
  std::vector<perf::ControlChannel> channels_;  // of rank 0: to rank i+1; of others: to rank 0
};

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

bool run_remote_rank(const RemoteRank& self, Duration limit, const RankBody& body) {
  RemoteBoard board(self, limit);
  try {
    value_or_throw(board.join());
    body(board, self.rank);
    return true;
  } catch (const std::exception& error) {
    print_error(self.rank, error.what());
    board.give_up(fmt::format("rank {}: {}", self.rank, error.what()));
    return false;
  }
}

}  // namespace pacecar::nccl
