// Serves a document to whoever may ask: the same user, and root. A caller connects, gets the whole
// document, made at that moment, and the server closes.
//
// One thread, which sleeps while nobody asks. One caller at a time, each for a bounded time, with a
// pause between two: callers cannot keep the process from its work.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "transport/state/state_directory.h"

namespace pacecar {

class StateServer {
 public:
  // `document` is called by the server's thread, until the server is destroyed. Errors: kSystem.
  static Result<std::unique_ptr<StateServer>> open(StateDirectory directory,
                                                   std::function<std::string()> document);
  // Waits for `document` to return, never for callers.
  ~StateServer();
  StateServer(const StateServer&) = delete;
  StateServer& operator=(const StateServer&) = delete;

 private:
  StateServer(StateDirectory directory, StateDirectory::Listening listening, FileDescriptor stop,
              std::function<std::string()> document);

  void serve();
  void answer(const FileDescriptor& caller) const;
  // Until the descriptor is ready, the server ends, or so long; negative: no limit. True: ready.
  bool wait_for(int fd, short events, int limit_ms) const;

  const StateDirectory directory_;
  const StateDirectory::Listening listening_;
  const FileDescriptor stop_;  // an eventfd, readable from the end on
  const std::function<std::string()> document_;
  const pid_t owner_ = getpid();
  std::thread thread_;
};

}  // namespace pacecar
