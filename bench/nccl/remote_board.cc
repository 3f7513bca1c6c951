#include "bench/nccl/remote_board.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "bench/perf/clock.h"
#include "bench/perf/control_listener.h"
#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::nccl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFigures, seconds, cpu_seconds, wrong, elapsed)

namespace {

using nlohmann::json;

constexpr Duration kOneTry = Duration::from_s(1);
constexpr auto kBetweenTries = std::chrono::milliseconds(100);

json note_of(const Board& board, size_t rank) {
  json note = board.figures[rank];
  note["handle"] = board.handles[rank];
  return note;
}

Result<void> take_note(const json& note, Board& board, size_t rank) {
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

}  // namespace

Result<std::unique_ptr<RemoteBoard>> RemoteBoard::join(int ranks, int rank, const std::string& host,
                                                       uint16_t port, Duration limit) {
  std::unique_ptr<RemoteBoard> board(new RemoteBoard(ranks, rank, limit));
  if (rank != 0) {
    ASSIGN_OR_RETURN(auto channel, connect_to_root(host, port, limit));
    RETURN_IF_ERROR(channel.send({{"type", "join"}, {"rank", rank}}));
    board->channels_.push_back(std::move(channel));
    return board;
  }
  ASSIGN_OR_RETURN(board->channels_, await_others(ranks, host, port));
  return board;
}

Result<void> RemoteBoard::barrier() {
  if (rank_ == 0) {
    RETURN_IF_ERROR(gather());
    return spread();
  }
  perf::ControlChannel& root = channels_.front();
  json note = note_of(*this, static_cast<size_t>(rank_));
  note["type"] = "note";
  RETURN_IF_ERROR(root.send(note));
  const auto all = root.expect("all", limit_);
  if (!all) return tl::unexpected(all.error());
  const json notes = all->value("notes", json::array());
  if (notes.size() != static_cast<size_t>(ranks())) {
    return fail(ErrorCode::kPeer, "rank 0 has another number of ranks: give all the same --ranks");
  }
  for (size_t i = 0; i < notes.size(); ++i) {
    RETURN_IF_ERROR(take_note(notes[i], *this, i));
  }
  return {};
}

Result<void> RemoteBoard::gather() {
  for (size_t i = 0; i < channels_.size(); ++i) {
    const auto note = channels_[i].expect("note", limit_);
    if (!note) {
      for (auto& channel : channels_) channel.send_error(note.error().message);
      return tl::unexpected(note.error());
    }
    RETURN_IF_ERROR(take_note(*note, *this, i + 1));
  }
  return {};
}

Result<void> RemoteBoard::spread() {
  json notes = json::array();
  for (size_t i = 0; i < static_cast<size_t>(ranks()); ++i) notes.push_back(note_of(*this, i));
  for (auto& channel : channels_) {
    RETURN_IF_ERROR(channel.send({{"type", "all"}, {"notes", notes}}));
  }
  return {};
}

void RemoteBoard::give_up(const std::string& why) {
  for (auto& channel : channels_) channel.send_error(why);
}

}  // namespace pacecar::nccl
