#include "bench/doctor/gather.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "bench/perf/json_fields.h"
#include "transport/state/state_directory.h"

namespace pacecar::doctor {
namespace {

using Json = nlohmann::json;

// Longer than a process may be busy with another caller.
constexpr Duration kAnswerLimit = Duration::from_s(3);

struct Socket {
  const StateDirectory* directory;
  std::string name;
  Json before;
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
      if (wanted) sockets.push_back({&directory, std::move(name), nullptr});
    }
  }
  return sockets;
}

// One look; false where there is no use in another.
bool look(Socket& socket, Json& document, Gathered& gathered) {
  auto text = socket.directory->read(socket.name, kAnswerLimit);
  const auto pid = static_cast<uint64_t>(*pid_of_socket(socket.name));
  if (!text) {
    if (text.error().code == ErrorCode::kPeer) {
      gathered.evidence.silent.push_back({host_name(), pid, text.error().message});
    } else if (text.error().code != ErrorCode::kNotFound) {  // then it has ended
      gathered.warnings.push_back(text.error().message);
    }
    return false;
  }
  document = perf::parse_json(*text);
  if (const auto process = read_sighting({nullptr, document}); !process) {
    gathered.warnings.push_back(fmt::format("pid {}: {}", pid, process.error().message));
    return false;
  }
  return true;
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
    std::erase_if(sockets, [&](Socket& socket) { return !look(socket, socket.before, gathered); });
    if (!sockets.empty()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(options.between.ns()));
    }
  }
  for (Socket& socket : sockets) {
    Json now;
    if (look(socket, now, gathered)) {
      gathered.evidence.seen.push_back({std::move(socket.before), std::move(now)});
    }
  }
  return gathered;
}

}  // namespace pacecar::doctor
