// Plays NCCL for one rule: a process's plugin, its connections and requests. Every call has NCCL's
// habits: outputs hold garbage before it, nothing sleeps, sizes may exceed what is sent.
//
// What a plugin must not do throws Violation. Thread rule: as the plugin's own.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/check/arena.h"
#include "bench/check/rule.h"
#include "net_plugin/abi/any_net.h"

namespace pacecar::check {

struct Subject {
  std::string path;
  int version = 0;  // 0: the newest
  int device = 0;
};

using HandleBytes = std::array<uint8_t, nccl::kHandleBytes>;

// Both ends of a connection of a process to itself.
struct Ends {
  void* send = nullptr;
  void* receive = nullptr;
};

class Host {
 public:
  // Loads the plugin. Throws Violation when it cannot be, or has no such table.
  Host(Arena& arena, const Subject& subject, int rank);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const nccl::AnyNet& net() const { return *net_; }
  int rank() const { return rank_; }
  int device() const { return subject_.device; }
  void* context() const { return context_; }

  // --- the life of a communicator ---
  void start();
  void finish();
  // A communicator beside it, from init on; finalized by the caller.
  void* another_context();
  nccl::NetPropertiesV12 properties(int device) const;

  // --- connections ---
  void* listen(HandleBytes* handle);
  void* try_connect(HandleBytes& handle);
  void* try_accept(void* listening);
  void close_listen(void* listening) const;
  Ends connect_self();
  // Rank 1's sending end, rank 0's receiving one.
  void* connect_ranks();
  void close(const Ends& ends) const;
  // `body` over a connection of the process to itself, which is closed when the body is done with
  // its memory.
  template <typename Body>
  void over_connection(const Body& body) {
    const Ends ends = connect_self();
    body(ends);
    close(ends);
  }
  void close_rank(void* comm) const;

  // --- requests; those that wait throw when it takes too long ---
  void* try_send(void* comm, std::span<uint8_t> data, int tag, void* memory) const;
  struct Part {
    std::span<uint8_t> data;
    int tag = 0;
    void* memory = nullptr;
  };
  // `hint`: what the request holds before the call.
  void* try_receive(void* comm, std::span<const Part> parts, void* hint) const;
  void* send(void* comm, std::span<uint8_t> data, int tag, void* memory) const;
  void* receive(void* comm, std::span<const Part> parts) const;
  void* receive(void* comm, const Part& part) const { return receive(comm, std::span(&part, 1)); }
  // Until all are done, polled in turn: a plugin may move nothing but within test. One size per
  // buffer of each receive.
  std::vector<std::vector<int>> finish(std::vector<void*> requests) const;
  std::vector<int> finish(void* request) const { return finish(std::vector{request}).front(); }
  // Both ends of a message; the sizes are the receive's.
  std::vector<int> finish(void* receiving, void* sending) const {
    return finish(std::vector{receiving, sending}).front();
  }
  // Until done or failed.
  nccl::NcclResult result_of(void* request) const;

  // --- the other process ---
  void barrier();
  [[noreturn]] void die();  // as a process that is killed
  void note(std::string_view text) { arena_.note.set(text); }

 private:
  Arena& arena_;
  const Subject subject_;
  const int rank_;
  void* library_;
  std::unique_ptr<nccl::AnyNet> net_;
  void* context_ = nullptr;
};

// Pages of their own, registered with one end of a connection.
class Buffer {
 public:
  Buffer(const Host& host, void* comm, size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<uint8_t> bytes() const { return {data_, size_}; }
  void* memory() const { return memory_; }
  Host::Part part(size_t offset, size_t size, int tag = 0) const {
    return {bytes().subspan(offset, size), tag, memory_};
  }
  void deregister();
  // From here on every access is a fault, as after free().
  void forbid_access();

 private:
  const Host& host_;
  void* comm_;
  size_t size_;
  uint8_t* data_;
  void* memory_ = nullptr;
};

// Throws Violation with `what` unless `holds`.
void expect(bool holds, std::string_view what);
void expect_success(nccl::NcclResult result, std::string_view call);
// Polls `step` until it is true; throws when that takes longer than `what` may.
void poll_until(std::string_view what, const std::function<bool()>& step);

}  // namespace pacecar::check
