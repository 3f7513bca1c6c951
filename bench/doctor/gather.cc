#include "bench/doctor/gather.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "bench/perf/json_fields.h"
#include "transport/state/ask.h"

namespace pacecar::doctor {
namespace {

using Json = nlohmann::json;

struct Socket {
  StatePlace place;
  Json before;
  Json now;
  Json profile_before;
  Json profile;

  uint64_t pid() const { return static_cast<uint64_t>(*pid_of_socket(place.name)); }
};

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "this host";
  return name.data();
}

std::vector<Socket> sockets_of(const std::vector<StateDirectory>& directories, uint64_t pid) {
  std::vector<Socket> sockets;
  for (const StateDirectory& directory : directories) {
    directory.remove_stale();
    for (std::string& name : directory.sockets()) {
      const bool wanted = pid == 0 || static_cast<uint64_t>(*pid_of_socket(name)) == pid;
      if (wanted)
        sockets.push_back({{&directory, std::move(name)}, nullptr, nullptr, nullptr, nullptr});
    }
  }
  return sockets;
}

// Null if a second sample is of no use.
Json understand(const Socket& socket, const Result<std::string>& answer,
                const GatherOptions& options, Gathered& gathered) {
  if (!answer) {
    if (answer.error().code == ErrorCode::kPeer) {
      gathered.evidence.silent.push_back({host_name(), socket.pid(), answer.error().message});
    } else if (answer.error().code != ErrorCode::kNotFound) {  // then it has ended
      gathered.warnings.push_back(answer.error().message);
    }
    return nullptr;
  }
  Json document = perf::parse_json(*answer);
  const auto process =
      options.page == kStateSummary ? read_summary(document) : read_sighting({nullptr, document});
  if (process) return document;
  gathered.warnings.push_back(fmt::format("pid {}: {}", socket.pid(), process.error().message));
  return nullptr;
}

// One look at all of them; those that are of no use go.
void look(std::vector<Socket>& sockets, Json Socket::*document, const GatherOptions& options,
          Gathered& gathered) {
  std::vector<StatePlace> places;
  for (const Socket& socket : sockets) places.push_back(socket.place);
  const auto answers = ask_all(
      places, {.page = options.page, .limit = options.limit, .max_bytes = options.max_bytes});
  for (size_t i = 0; i < sockets.size(); ++i) {
    sockets[i].*document = understand(sockets[i], answers[i], options, gathered);
  }
  std::erase_if(sockets, [=](const Socket& socket) { return (socket.*document).is_null(); });
}

// Reads the profilers' records of these processes; null: none.
void look_at_profiles(std::vector<Socket>& sockets, Json Socket::*document,
                      const GatherOptions& options) {
  if (options.page != kWholeState) return;
  std::vector<StatePlace> places;
  for (const Socket& socket : sockets) places.push_back(socket.place);
  const auto answers = ask_all(
      places, {.page = kStateProfile, .limit = options.limit, .max_bytes = options.max_bytes});
  for (size_t i = 0; i < sockets.size(); ++i) {
    Json page = answers[i] ? perf::parse_json(*answers[i]) : Json();
    if (!page.is_object()) continue;  // a process without the plugin has no such page
    const auto profiles = read_profiles(nullptr, page);
    if (profiles && !profiles->empty()) sockets[i].*document = std::move(page);
  }
}

}  // namespace

Gathered gather(const GatherOptions& options) {
  Gathered gathered;
  std::vector<StateDirectory> directories;
  for (const std::string& path : options.directories) {
    auto directory = StateDirectory::find(path);
    if (directory) {
      directories.push_back(std::move(*directory));
    } else if (directory.error().code != ErrorCode::kNotFound) {
      gathered.warnings.push_back(directory.error().message);
    }
  }
  std::vector<Socket> sockets = sockets_of(directories, options.pid);
  if (options.between > Duration()) {
    look(sockets, &Socket::before, options, gathered);
    look_at_profiles(sockets, &Socket::profile_before, options);
    if (!sockets.empty()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(options.between.ns()));
    }
  }
  look(sockets, &Socket::now, options, gathered);
  look_at_profiles(sockets, &Socket::profile, options);
  for (Socket& socket : sockets) {
    gathered.evidence.seen.push_back({std::move(socket.before), std::move(socket.now),
                                      essence_of_profile(socket.profile_before),
                                      std::move(socket.profile)});
  }
  return gathered;
}

}  // namespace pacecar::doctor
