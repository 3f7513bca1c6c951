// Serves pages to processes of the same user and of root. A caller connects, names a page in the
// first line of an HTTP request, gets the page as of that moment, and the server closes. So `curl
// --unix-socket PID-0.sock http://pacecar/metrics` works.
//
// One thread, which sleeps without callers. One caller at a time, each for a bounded time, with a
// pause between two: callers cannot keep the process from its work.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transport/state/state_directory.h"
#include "transport/state/state_request.h"
#include "transport/state/time_limit.h"

namespace pacecar {

struct StatePage {
  std::string_view path;
  std::string type;                   // of its content, as HTTP says it
  std::function<std::string()> make;  // called by the server's thread, until it is destroyed
};
// The first page is for callers that name none.
using StatePages = std::vector<StatePage>;

class StateServer {
 public:
  // At least one page. Errors: kSystem.
  static Result<std::unique_ptr<StateServer>> open(StateDirectory directory, StatePages pages);
  // Waits for a page to be made, never for callers.
  ~StateServer();
  StateServer(const StateServer&) = delete;
  StateServer& operator=(const StateServer&) = delete;

 private:
  StateServer(StateDirectory directory, StateDirectory::Listening listening, FileDescriptor stop,
              StatePages pages);

  void serve();
  void answer(const FileDescriptor& caller) const;
  std::string first_words(const FileDescriptor& caller, const TimeLimit& time) const;
  std::string response(std::string_view request) const;
  // Waits until the descriptor is ready, the server ends, or the time is over; negative: no limit.
  // True: ready.
  bool wait_for(int fd, short events, int limit_ms) const;

  const StateDirectory directory_;
  const StateDirectory::Listening listening_;
  const FileDescriptor stop_;  // an eventfd, readable from the end on
  const StatePages pages_;
  const pid_t owner_ = getpid();
  std::thread thread_;
};

}  // namespace pacecar
