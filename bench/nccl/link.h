// A rank's connection to the rank `distance` places after it around the ring, its connection from
// the rank as many places before it, and the memory that is sent from and received into. Sizes are
// in bytes. Errors are thrown. Thread rule: one thread per rank.
#pragma once

#include <fmt/format.h>
#include <sched.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "bench/nccl/board.h"
#include "bench/nccl/value_or_throw.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

// Calls step() until done(). After a step without progress the processor is yielded to other
// processes. Throws when another rank has failed.
template <typename Done, typename Step>
void until(Board& board, const Done& done, const Step& step) {
  while (!done()) {
    if (step()) continue;
    value_or_throw(board.others_are_well());
    sched_yield();
  }
}

inline std::span<uint8_t> bytes_of(std::span<float> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

// The requests of one direction of a connection during an operation, in order: posted, then done.
// As in NCCL, only the oldest request is tested.
class RequestStream {
 public:
  static constexpr size_t kWindow = 8;  // in flight, unless another is given

  explicit RequestStream(size_t window = kWindow) : requests_(window) {}

  size_t window() const { return requests_.size(); }
  size_t posted() const { return posted_; }
  size_t done() const { return done_; }
  size_t in_flight() const { return posted_ - done_; }
  bool full() const { return in_flight() == window(); }
  bool may_post(size_t total) const { return posted_ < total && !full(); }
  // False when `request` is nullptr: the plugin accepts no request now.
  bool post(void* request) {
    if (request != nullptr) requests_[posted_++ % window()] = request;
    return request != nullptr;
  }
  // The bytes of the oldest request, if that has completed.
  std::optional<size_t> take(const Host& host) {
    std::array<int, 1> size{};
    if (in_flight() == 0 || !host.test(requests_[done_ % window()], size)) return {};
    ++done_;
    return static_cast<size_t>(size.front());
  }
  // True when the oldest request has completed. A receive must have `due` bytes.
  bool finish_send(const Host& host) { return take(host).has_value(); }
  bool finish_receive(const Host& host, size_t due) {
    const std::optional<size_t> bytes = take(host);
    if (bytes && *bytes != due) {
      throw HostError(fmt::format("received {} bytes where {} were due", *bytes, due));
    }
    return bytes.has_value();
  }
  void reset() { posted_ = done_ = 0; }

 private:
  size_t posted_ = 0;
  size_t done_ = 0;
  std::vector<void*> requests_;
};

class Link {
 public:
  // Connects: every rank has to make its Link at the same time.
  Link(const Host& host, Board& board, size_t rank, size_t distance, std::span<float> sent,
       std::span<float> received)
      : to(further(board, rank, distance)),
        from(further(board, rank, static_cast<size_t>(board.ranks()) - distance)),
        ends(connect(host, board, rank, to)),
        send_memory(host, ends.send, bytes_of(sent)),
        receive_memory(host, ends.receive, bytes_of(received)) {}

  void begin() {  // before each operation
    sends.reset();
    receives.reset();
  }
  bool done(size_t total) const { return sends.done() == total && receives.done() == total; }
  // Posts the next of an operation's `total` messages, whose data is part(index), if it can be
  // posted now.
  template <typename Part>
  bool post_send(const Host& host, size_t total, const Part& part) {
    return sends.may_post(total) &&
           sends.post(
               host.try_send(ends.send, {bytes_of(part(sends.posted())), 0, send_memory.memory()}));
  }
  template <typename Part>
  bool post_receive(const Host& host, size_t total, const Part& part) {
    return receives.may_post(total) &&
           receives.post(host.try_receive(
               ends.receive, {bytes_of(part(receives.posted())), 0, receive_memory.memory()}));
  }
  void close(const Host& host) {
    send_memory.deregister();
    receive_memory.deregister();
    host.close(ends);
  }

  const size_t to;
  const size_t from;
  const Ends ends;
  Registration send_memory;
  Registration receive_memory;
  RequestStream sends;
  RequestStream receives;

 private:
  static size_t further(const Board& board, size_t rank, size_t distance) {
    return (rank + distance) % static_cast<size_t>(board.ranks());
  }
  static Ends connect(const Host& host, Board& board, size_t rank, size_t to) {
    const Listening listening = host.listen();
    board.handles[rank] = listening.handle;
    value_or_throw(board.barrier());
    HandleBytes next = board.handles[to];
    Ends ends;
    // Connect and accept are tried in turns: each rank's connect waits for the next rank's accept,
    // all around the ring.
    until(
        board, [&] { return host.try_both(next, listening.comm, &ends); }, [] { return false; });
    host.close_listen(listening.comm);
    return ends;
  }
};

}  // namespace pacecar::nccl
