// Connections from every rank to every other, on several channels at once: channel c has its own,
// on device c. The sends and receives of an operation are added first, and then carried together,
// as NCCL does it: in slices, several of them in flight on each connection.
//
// Thread rule: one thread per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/fake_nccl_host.h"
#include "tests/support/rank_group.h"

namespace pacecar::test {

using Elements = std::span<uint32_t>;

// Part `index` of `of` parts whose sizes differ by at most one element.
Elements part_of(Elements all, size_t index, size_t of);

class Mesh {
 public:
  // As many channels as the host has devices; `capacity` elements in data() and in inbox().
  Mesh(const FakeNcclHost& host, Rank& rank, size_t capacity);
  ~Mesh();  // closes
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  size_t channels() const { return channels_; }
  // The rank that is `distance` further around the ring; -ranks() <= rank() + `distance`.
  int at(int distance) const { return (rank_ + distance + ranks_) % ranks_; }
  // The registered memory: messages are sent from it and received into it.
  Elements data() const { return elements_of(data_); }
  Elements inbox() const { return elements_of(inbox_); }

  // Add a message for run() to carry: `elements`, on one channel or divided among all. At
  // most one message per peer, channel and direction. A message may be empty.
  void send(int peer, Elements elements, size_t channel);
  void receive(int peer, Elements elements, size_t channel);
  void send(int peer, Elements elements);
  void receive(int peer, Elements elements);
  // Returns when all added messages are carried.
  void run();

 private:
  struct Link;
  struct Move;

  static Elements elements_of(const nccl::Pages& pages);
  void connect(Rank& rank);
  size_t index(int peer, size_t channel) const {
    return static_cast<size_t>(peer) * channels_ + channel;
  }
  bool advance(Move& move) const;
  Part slice_of(const Move& move, size_t slice) const;

  const FakeNcclHost& host_;
  const int rank_;
  const int ranks_;
  const size_t channels_;
  const nccl::Pages data_;
  const nccl::Pages inbox_;
  std::vector<std::unique_ptr<Link>> sending_;  // by index(); null for this rank itself
  std::vector<std::unique_ptr<Link>> receiving_;
  std::vector<Move> moves_;
};

}  // namespace pacecar::test
