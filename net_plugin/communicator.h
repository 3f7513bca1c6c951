// What an NCCL communicator holds between init and finalize, and the Context that all of them
// share.
//
// A process has one Context, opened by the first init and destroyed by the last finalize (or, after
// an abort, by the last close of a connection that still used it). A later init opens a new one.
//
// connect() is called again and again until the connection is there, each time with the same copy
// of the listener's handle. The attempt in between is found by that copy's address, which NCCL
// keeps for all calls of one attempt, together with its bytes, because NCCL uses the memory for
// another handle when it has given an attempt up. The table belongs to the communicator, so
// finalize frees the attempts that were given up.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>

#include "net_plugin/comm.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::plugin {

class Communicator {
 public:
  explicit Communicator(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  Result<std::unique_ptr<ListenComm>> listen(size_t nic);
  // `handle` is NCCL's copy of a handle. An empty pointer means "not yet, call again".
  Result<std::unique_ptr<SendComm>> connect(size_t nic, const void* handle);

 private:
  struct Attempt {
    const void* address;
    size_t nic;
    std::array<uint8_t, Handle::kBytes> bytes;
    auto operator<=>(const Attempt&) const = default;
  };

  std::shared_ptr<Context> context_;
  std::mutex mutex_;  // guards attempts_
  std::map<Attempt, std::unique_ptr<Connecting>> attempts_;
};

// Joins the process's Context, and opens it when this is the first communicator.
Result<std::unique_ptr<Communicator>> open_communicator();
void close_communicator(std::unique_ptr<Communicator> communicator);

// The Context of the open communicators; nullptr when there are none.
std::shared_ptr<Context> current_context();

}  // namespace pacecar::plugin
