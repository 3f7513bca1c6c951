// Serves pages to processes of the same user and of root. A caller connects and names a page in the
// first line of an HTTP request. The server makes the page, sends it, and closes the connection.
// One thread, which sleeps without callers. It serves one caller at a time, for a limited time,
// with a pause between two, so that callers cannot keep the process from its work.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transport/state/state_directory.h"
#include "transport/state/time_limit.h"

namespace pacecar {

inline constexpr std::string_view kWholeState = "/state";      // JSON, every flow
inline constexpr std::string_view kStateSummary = "/summary";  // JSON, sums over the flows
inline constexpr std::string_view kStateProfile = "/profile";  // of net_plugin/profiler, JSON
inline constexpr const char* kJsonType = "application/json";

struct StatePage {
  std::string_view path;
  std::string type;  // its HTTP content type
  std::function<std::string()>
      make;  // called by the server's thread, until the server is destroyed
};
using StatePages = std::vector<StatePage>;  // A caller that names no page gets the first one.

class StateServer {
 public:
  // `pages` has at least one. Errors: kSystem.
  static Result<std::unique_ptr<StateServer>> open(StateDirectory directory, StatePages pages);
  ~StateServer();  // Waits for a page that is being made, never for callers.
  StateServer(const StateServer&) = delete;
  StateServer& operator=(const StateServer&) = delete;

 private:
  StateServer(StateDirectory directory, StateDirectory::Listening listening, FileDescriptor stop,
              StatePages pages);

  void serve();
  void answer(const FileDescriptor& caller) const;
  std::string first_line(const FileDescriptor& caller, const TimeLimit& time) const;
  std::string response(std::string_view request) const;
  // Waits until the descriptor is ready, the server ends, or the time is over (negative: no limit).
  // True: the descriptor is ready.
  bool wait_for(int fd, short events, int limit_ms) const;

  const StateDirectory directory_;
  const StateDirectory::Listening listening_;
  const FileDescriptor stop_;  // an eventfd, readable once the server ends
  const StatePages pages_;
  const pid_t owner_ = getpid();
  std::thread thread_;
};

}  // namespace pacecar
