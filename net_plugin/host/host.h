// Plays NCCL: connections and requests of one communicator. Every call has NCCL's habits: outputs
// hold garbage before it, nothing sleeps, sizes may be too large. Errors, threads: Communicator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net_plugin/host/communicator.h"

namespace pacecar::nccl {

using HandleBytes = std::array<uint8_t, kHandleBytes>;

struct Listening {
  HandleBytes handle{};
  void* comm = nullptr;
};

// A sending and a receiving end: of one connection, if the process is connected to itself.
struct Ends {
  void* send = nullptr;
  void* receive = nullptr;
};

// Registered memory of one message.
struct Part {
  std::span<uint8_t> data;
  int tag = 0;
  void* memory = nullptr;
};

class Host : public Communicator {
 public:
  using Communicator::Communicator;

  // --- connections, on the subject's device unless another is named ---
  Listening listen(std::optional<int> device = {}) const;
  // One call; nullptr means "not yet". `handle` is the same object for all calls of an attempt.
  void* try_connect(HandleBytes& handle, std::optional<int> device = {}) const;
  void* try_accept(void* listening) const;
  void* connect(HandleBytes handle, std::optional<int> device = {}) const;
  void* accept(void* listening) const;
  // One call for each end that is not there yet; true when both are.
  bool try_both(HandleBytes& handle, void* listening, Ends* ends,
                std::optional<int> device = {}) const;
  Ends connect_self() const;
  void close_listen(void* listening) const {
    expect_success(net().closeListen(listening), "closeListen");
  }
  void close_send(void* comm) const { expect_success(net().closeSend(comm), "closeSend"); }
  void close_receive(void* comm) const { expect_success(net().closeRecv(comm), "closeRecv"); }
  void close(const Ends& ends) const {
    close_send(ends.send);
    close_receive(ends.receive);
  }

  // --- requests ---
  // One call, whatever it returns. `hint`: what the request holds before it.
  NcclResult post_send(void* comm, const Part& part, void** request) const;
  NcclResult post_receive(void* comm, std::span<const Part> parts, void** request,
                          void* hint = kGarbage) const;
  // One call; nullptr means "again later".
  void* try_send(void* comm, const Part& part) const;
  void* try_receive(void* comm, std::span<const Part> parts, void* hint = kGarbage) const;
  void* try_receive(void* comm, const Part& part, void* hint = kGarbage) const {
    return try_receive(comm, std::span(&part, 1), hint);
  }
  // Call until there is a request.
  void* send(void* comm, const Part& part) const;
  void* receive(void* comm, std::span<const Part> parts) const;
  void* receive(void* comm, const Part& part) const { return receive(comm, std::span(&part, 1)); }
  // True once, when the request is done; `sizes` then has one per buffer of a receive.
  bool test(void* request, std::span<int> sizes) const;
  // Tests the requests in turn until all are done, as a plugin may make progress within test only.
  // Returns one size per buffer of each receive.
  std::vector<std::vector<int>> finish(std::vector<void*> requests) const;
  // Tests one request until it is done; returns its (first) size.
  int finish(void* request) const { return finish(std::vector{request}).front().front(); }
  // Tests both ends of a message until they are done; returns the size of the receive.
  int finish(void* receiving, void* sending) const {
    return finish(std::vector{receiving, sending}).front().front();
  }
};

}  // namespace pacecar::nccl
