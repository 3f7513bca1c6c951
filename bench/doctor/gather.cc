#include "bench/doctor/gather.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "bench/cli/json_fields.h"
#include "transport/base/invalid.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/state/ask.h"

namespace pacecar::doctor {
namespace {

using Json = nlohmann::json;

struct Socket {
  StatePlace place;
  Samples samples;

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
      if (pid != 0 && static_cast<uint64_t>(*pid_of_socket(name)) != pid) continue;
      sockets.push_back({{&directory, std::move(name)}, {}});
    }
  }
  return sockets;
}

// The document in the answer; null if the process gives none.
Json document_of(const Socket& socket, const Result<std::string>& answer,
                 const GatherOptions& options, Gathered& gathered) {
  if (!answer) {
    if (answer.error().code == ErrorCode::kPeer) {
      gathered.evidence.silent.push_back({host_name(), socket.pid(), answer.error().message});
    } else if (answer.error().code != ErrorCode::kNotFound) {  // then it has ended
      gathered.warnings.push_back(answer.error().message);
    }
    return nullptr;
  }
  Json document = cli::parse_json(*answer);
  const auto process =
      options.page == kStateSummary ? read_summary(document) : read_samples({nullptr, document});
  if (process) return document;
  gathered.warnings.push_back(fmt::format("pid {}: {}", socket.pid(), process.error().message));
  return nullptr;
}

std::vector<Result<std::string>> ask(const std::vector<Socket>& sockets, std::string_view page,
                                     const GatherOptions& options) {
  std::vector<StatePlace> places;
  for (const Socket& socket : sockets) places.push_back(socket.place);
  return ask_all(places, {.page = page, .limit = options.limit, .max_bytes = options.max_bytes});
}

// One sample of every process, with its profiler's record if it has one (null: none); removes
// processes that give no document.
void sample(std::vector<Socket>& sockets, Json Samples::*document, Json Samples::*profile,
            const GatherOptions& options, Gathered& gathered) {
  const auto answers = ask(sockets, options.page, options);
  for (size_t i = 0; i < sockets.size(); ++i) {
    sockets[i].samples.*document = document_of(sockets[i], answers[i], options, gathered);
  }
  std::erase_if(sockets,
                [=](const Socket& socket) { return (socket.samples.*document).is_null(); });
  if (options.page != kWholeState) return;
  const auto records = ask(sockets, kStateProfile, options);
  for (size_t i = 0; i < sockets.size(); ++i) {
    Json page = records[i] ? cli::parse_json(*records[i]) : Json();
    if (!page.is_object()) continue;  // a process without the plugin has no such page
    const auto profiles = read_profiles(nullptr, page);
    if (profiles && !profiles->empty()) sockets[i].samples.*profile = std::move(page);
  }
}

}  // namespace

Result<std::vector<std::string>> state_directories() {
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  if (params.state_dir == kNoStateDirectory) {
    return invalid(
        "PACECAR_STATE_DIR is none: processes with that setting cannot be seen; unset it");
  }
  if (params.state_dir.empty()) return usual_state_directories();
  return std::vector<std::string>{params.state_dir};
}

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
    sample(sockets, &Samples::before, &Samples::profile_before, options, gathered);
    if (!sockets.empty()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(options.between.ns()));
    }
  }
  sample(sockets, &Samples::now, &Samples::profile, options, gathered);
  for (Socket& socket : sockets) gathered.evidence.seen.push_back(std::move(socket.samples));
  return gathered;
}

}  // namespace pacecar::doctor
