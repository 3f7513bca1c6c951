#include "bench/nccl/remote_board.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "bench/perf/control_listener.h"
#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::nccl {
namespace {

using nlohmann::json;

constexpr Duration kOneTry = Duration::from_s(1);
constexpr auto kBetweenTries = std::chrono::milliseconds(100);

json to_json(const HandleBytes& handle, const RankFigures& figures) {
  return {{"handle", handle},
          {"seconds", figures.seconds},
          {"cpu_seconds", figures.cpu_seconds},
          {"wrong", figures.wrong},
          {"elapsed", figures.elapsed}};
}

Result<void> from_json(const json& note, HandleBytes* handle, RankFigures* figures) {
  try {
    *handle = note.at("handle").get<HandleBytes>();
    *figures = {note.at("seconds").get<double>(), note.at("cpu_seconds").get<double>(),
                note.at("wrong").get<uint64_t>(), note.at("elapsed").get<double>()};
    return {};
  } catch (const json::exception& what) {
    return fail(ErrorCode::kPeer, fmt::format("another rank sent nonsense ({}): run the same "
                                              "version on all hosts",
                                              what.what()));
  }
}

Result<perf::ControlChannel> reach(const std::string& host, uint16_t port, Duration limit) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.ns());
  while (true) {
    auto channel = perf::ControlChannel::connect(host, port, kOneTry);
    if (channel || std::chrono::steady_clock::now() > give_up) return channel;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void warn(const Error& why) { fmt::print(stderr, "rank 0: {}\n", why.message); }

// The channels to all ranks but 0, in their order. Other callers are strangers.
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
    ASSIGN_OR_RETURN(auto channel, reach(host, port, limit));
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
  const auto self = static_cast<size_t>(rank_);
  perf::ControlChannel& root = channels_.front();
  json note = to_json(handles[self], figures[self]);
  note["type"] = "note";
  RETURN_IF_ERROR(root.send(note));
  const auto all = root.expect("all", limit_);
  if (!all) return tl::unexpected(all.error());
  const json notes = all->value("notes", json::array());
  if (notes.size() != static_cast<size_t>(ranks())) {
    return fail(ErrorCode::kPeer, "rank 0 has another number of ranks: give all the same --ranks");
  }
  for (size_t i = 0; i < notes.size(); ++i) {
    RETURN_IF_ERROR(from_json(notes[i], &handles[i], &figures[i]));
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
    RETURN_IF_ERROR(from_json(*note, &handles[i + 1], &figures[i + 1]));
  }
  return {};
}

Result<void> RemoteBoard::spread() {
  json notes = json::array();
  for (size_t i = 0; i < static_cast<size_t>(ranks()); ++i) {
    notes.push_back(to_json(handles[i], figures[i]));
  }
  for (auto& channel : channels_) {
    RETURN_IF_ERROR(channel.send({{"type", "all"}, {"notes", notes}}));
  }
  return {};
}

void RemoteBoard::give_up(const std::string& why) {
  for (auto& channel : channels_) channel.send_error(why);
}

}  // namespace pacecar::nccl
