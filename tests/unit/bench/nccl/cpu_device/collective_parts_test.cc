// What one rank sends and receives in each collective, transfer by transfer, where its neighbours
// are reference peers: ranks with a real GPU expect the same parts, in this order and with
// these sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "tests/support/device_world.h"
#include "tests/support/transfer_neighbours.h"

namespace pacecar::collective_parts_test {
namespace {

using nccl::cpu::Algorithm;
using nccl::cpu::Block;
using nccl::cpu::CollectiveWork;
using nccl::cpu::Fiber;
using nccl::cpu::Function;
using nccl::cpu::Operation;
using nccl::cpu::Protocol;
using nccl::cpu::Type;
using test::Bytes;
using test::CollectiveFields;
using test::DeviceCommunicator;
using test::DeviceLink;
using test::Neighbour;
using test::ProtocolUse;
using enum test::Neighbour::Role;
using Numbers = std::vector<uint32_t>;

constexpr size_t kCount = 5000;  // elements of the channel
constexpr std::array kProtocols{Protocol::kLl, Protocol::kLl128, Protocol::kSimple};

const nccl::cpu::Layout& layout() { return *nccl::cpu::layout_of(22907); }

Numbers random_numbers(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Numbers numbers(count);
  for (uint32_t& one : numbers) one = static_cast<uint32_t>(random());
  return numbers;
}
Numbers sum(Numbers one, const Numbers& other) {
  for (size_t i = 0; i < one.size(); ++i) one[i] += other[i];
  return one;
}
Numbers part(const Numbers& of, size_t begin, size_t count) {
  const auto at = of.begin() + static_cast<long>(begin);
  return {at, at + static_cast<long>(count)};
}
void put_part(Numbers& to, size_t begin, const Numbers& numbers) {
  std::ranges::copy(numbers, to.begin() + static_cast<long>(begin));
}
Bytes bytes_of(const Numbers& numbers) {
  const auto* const begin = reinterpret_cast<const char*>(numbers.data());
  return {begin, begin + numbers.size() * sizeof(uint32_t)};
}

// Whether the buffers are registered with the NIC; and whether each rank has a host of its own.
enum class Registered { kNot, kWithNic, kAloneOnItsHost };

// A rank in a ring or a tree, and its exchanges with each neighbour, in order.
class OneRank {
 public:
  OneRank(Operation operation, Algorithm algorithm, Protocol protocol, int rank,
          const std::vector<int>& ring, Registered registered = Registered::kNot)
      : function_{.operation = operation,
                  .type = Type::kInt32,
                  .algorithm = algorithm,
                  .protocol = protocol},
        use_{.protocol = protocol, .element_bytes = sizeof(uint32_t)},
        communicator_(layout(), rank, static_cast<int>(ring.size()), 1, use_.bytes),
        order_(ring),
        registered_(registered) {
    communicator_.set_ring(0, ring);
    std::rotate(order_.begin(), std::ranges::find(order_, rank), order_.end());
    const bool two_by_two = protocol == Protocol::kSimple && algorithm == Algorithm::kRing &&
                            operation != Operation::kBroadcast && operation != Operation::kReduce;
    if (two_by_two) use_.slices = use_.slice_steps = 2;
    // Both are connected, whether they exchange anything or not.
    sent_[next()];
    received_[back(1)];
    // Half of the greatest transfer.
    const size_t grain = std::array<size_t, 3>{16, 1920, 512}[static_cast<size_t>(protocol)];
    grains_ = std::max<size_t>(1, test::most_bytes(use_) / grain / 2);
    chunk_ = grains_ * grain / sizeof(uint32_t);
    if (registered == Registered::kAloneOnItsHost) {  // one step for everything
      use_.slices = use_.slice_steps = 1;
      chunk_ = kCount;
    }
  }

  size_t ranks() const { return order_.size(); }
  // The rank `steps` behind this one in the ring; and the one after this one.
  int back(size_t steps) const { return order_[(ranks() - steps) % ranks()]; }
  int next() const { return order_[1]; }
  // Where this rank stands, counted from rank 0.
  size_t index() const {
    return (ranks() - static_cast<size_t>(std::ranges::find(order_, 0) - order_.begin())) % ranks();
  }
  size_t chunk() const { return chunk_; }
  DeviceCommunicator& communicator() { return communicator_; }

  // To be called before any exchange is added.
  void set_buffers(Numbers input, size_t outputs) {
    input_ = std::move(input);
    output_.resize(outputs);
  }
  // Where the NIC finds it: in the input, or in the output.
  void sends_input(size_t at, const Numbers& numbers) {
    exchange(true, next(), numbers, input_.data() + at);
  }
  void sends(int peer, const Numbers& numbers, size_t at) {
    exchange(true, peer, numbers, output_.data() + at);
  }
  // Random numbers arrive.
  Numbers receives(int peer, size_t count, size_t at) {
    Numbers numbers = random_numbers(count, ++seed_);
    exchange(false, peer, numbers, output_.data() + at);
    return numbers;
  }

  // The output; empty if an end waits for data that does not come.
  Numbers run(int root = 0) {
    CollectiveFields fields{.root = root,
                            .send = reinterpret_cast<const char*>(input_.data()),
                            .receive = reinterpret_cast<char*>(output_.data()),
                            .counts = {kCount, 0, 0},
                            .grains = {grains_, 1, 1},
                            .net_registered = registered_ != Registered::kNot,
                            .one_rank_per_node = registered_ == Registered::kAloneOnItsHost};
    const std::vector<char> bytes = fields.bytes(layout());
    const CollectiveWork work(layout(), bytes.data());
    const Block block(layout(), communicator_.address(), 0);
    std::deque<DeviceLink> links;
    std::deque<Neighbour> neighbours;
    for (const bool sending : {true, false}) {
      for (const auto& [peer, all] : sending ? sent_ : received_) {
        const bool direct = registered_ != Registered::kNot;
        DeviceLink& link =
            links.emplace_back(use_.bytes, use_.bytes.simple,
                               direct ? DeviceLink::Fifo::kDirect : DeviceLink::Fifo::kInOrder);
        link.write_info(communicator_.info(0, peer, sending, 0), 0);
        neighbours.emplace_back(link, use_, sending ? kReceives : kSends, all.bytes, 0,
                                direct ? all.users : std::vector<char*>());
      }
    }
    Fiber fiber(collective(block, function_, work));
    return run_together(fiber, neighbours) ? output_ : Numbers();
  }

 private:
  struct Exchanged {
    std::vector<Bytes> bytes;
    std::vector<char*> users;
  };
  void exchange(bool sends, int peer, const Numbers& numbers, uint32_t* at) {
    Exchanged& all = sends ? sent_[peer] : received_[peer];
    all.bytes.push_back(bytes_of(numbers));
    all.users.push_back(reinterpret_cast<char*>(at));
  }

  Function function_;
  ProtocolUse use_;
  DeviceCommunicator communicator_;
  std::vector<int> order_;
  Registered registered_;
  Numbers input_;
  Numbers output_;
  size_t grains_;
  size_t chunk_;
  uint64_t seed_ = 0;
  std::map<int, Exchanged> sent_;
  std::map<int, Exchanged> received_;
};

bool can_be(Operation operation, Protocol protocol, Registered registered) {
  if (registered == Registered::kNot) return true;
  if (protocol != Protocol::kSimple) return false;
  return operation == Operation::kAllGather ||
         (registered == Registered::kWithNic &&
          (operation == Operation::kAllReduce || operation == Operation::kBroadcast));
}

// Rank 1 in rings of two to five ranks, with each protocol.
template <typename Check>
void for_each_ring(Operation operation, Check check) {
  for (const Protocol protocol : kProtocols) {
    for (const Registered registered :
         {Registered::kNot, Registered::kWithNic, Registered::kAloneOnItsHost}) {
      if (!can_be(operation, protocol, registered)) continue;
      for (const std::vector<int>& ring :
           {std::vector{1, 0}, {0, 2, 1}, {3, 1, 2, 0}, {1, 4, 0, 3, 2}}) {
        SCOPED_TRACE("protocol " + std::to_string(static_cast<int>(protocol)) + ", ranks " +
                     std::to_string(ring.size()) + ", registered " +
                     std::to_string(static_cast<int>(registered)));
        check(OneRank(operation, Algorithm::kRing, protocol, 1, ring, registered));
      }
    }
  }
}

// Begin and size of the chunks, one after the other.
std::vector<std::pair<size_t, size_t>> chunks(size_t chunk) {
  std::vector<std::pair<size_t, size_t>> all;
  for (size_t begin = 0; begin < kCount; begin += chunk) {
    all.emplace_back(begin, std::min(chunk, kCount - begin));
  }
  return all;
}

TEST(CollectiveParts, OfAllReduceOverARing) {
  for_each_ring(Operation::kAllReduce, [](OneRank one) {
    const size_t ranks = one.ranks();
    const Numbers input = random_numbers(kCount, 100);
    Numbers expected(kCount);
    one.set_buffers(input, kCount);
    for (size_t begin = 0; begin < kCount; begin += ranks * one.chunk()) {
      const size_t left = kCount - begin;
      // The last chunks share the remaining elements, in multiples of 16 bytes.
      const size_t even = ((left + ranks - 1) / ranks + 3) / 4 * 4;
      const size_t chunk = left < ranks * one.chunk() ? even : one.chunk();
      // The piece of the rank that is `back` behind: its begin, and its size.
      const auto piece = [&](size_t back) {
        const size_t offset = std::min((one.index() + ranks - back) % ranks * chunk, left);
        return std::pair(begin + offset, std::min(chunk, left - offset));
      };
      one.sends_input(piece(1).first, part(input, piece(1).first, piece(1).second));
      for (size_t back = 2; back <= ranks; ++back) {
        const auto [at, count] = piece(back);
        const Numbers reduced = sum(one.receives(one.back(1), count, at), part(input, at, count));
        one.sends(one.next(), reduced, at);
        if (back == ranks) put_part(expected, at, reduced);
      }
      for (size_t back = 1; back < ranks; ++back) {
        const auto [at, count] = piece(back);
        const Numbers whole = one.receives(one.back(1), count, at);
        if (back + 1 < ranks) one.sends(one.next(), whole, at);
        put_part(expected, at, whole);
      }
    }
    EXPECT_EQ(one.run(), expected);
  });
}

TEST(CollectiveParts, OfAllGather) {
  for_each_ring(Operation::kAllGather, [](OneRank one) {
    const Numbers input = random_numbers(kCount, 100);
    Numbers expected(one.ranks() * kCount);
    one.set_buffers(input, expected.size());
    for (const auto& [begin, count] : chunks(one.chunk())) {
      const auto of = [&, first = begin](size_t back) {
        return static_cast<size_t>(one.back(back)) * kCount + first;
      };
      one.sends_input(begin, part(input, begin, count));
      put_part(expected, of(0), part(input, begin, count));
      for (size_t back = 1; back < one.ranks(); ++back) {
        const Numbers passed = one.receives(one.back(1), count, of(back));
        if (back + 1 < one.ranks()) one.sends(one.next(), passed, of(back));
        put_part(expected, of(back), passed);
      }
    }
    EXPECT_EQ(one.run(), expected);
  });
}

TEST(CollectiveParts, OfReduceScatter) {
  for_each_ring(Operation::kReduceScatter, [](OneRank one) {
    const Numbers input = random_numbers(one.ranks() * kCount, 100);
    Numbers expected(kCount);
    one.set_buffers(input, kCount);
    for (const auto& [begin, count] : chunks(one.chunk())) {
      for (size_t back = 1; back <= one.ranks(); ++back) {
        const auto of = static_cast<size_t>(one.back(back)) * kCount;
        Numbers reduced = part(input, of + begin, count);
        if (back > 1) reduced = sum(one.receives(one.back(1), count, 0), reduced);
        if (back < one.ranks()) one.sends(one.next(), reduced, 0);
        put_part(expected, begin, reduced);
      }
    }
    EXPECT_EQ(one.run(), expected);
  });
}

// From the root around the ring, to the rank before it.
TEST(CollectiveParts, OfBroadcast) {
  for (size_t back = 0; back < 5; ++back) {
    for_each_ring(Operation::kBroadcast, [back](OneRank one) {
      if (back >= one.ranks()) return;
      const Numbers input = random_numbers(kCount, 100);
      Numbers expected(kCount);
      one.set_buffers(input, kCount);
      for (const auto& [begin, count] : chunks(one.chunk())) {
        Numbers passed = part(input, begin, count);
        if (back == 0) {
          one.sends_input(begin, passed);
        } else {
          passed = one.receives(one.back(1), count, begin);
          if (back + 1 < one.ranks()) one.sends(one.next(), passed, begin);
        }
        put_part(expected, begin, passed);
      }
      EXPECT_EQ(one.run(one.back(back)), expected);
    });
  }
}

// From the rank after the root around the ring, to the root.
TEST(CollectiveParts, OfReduce) {
  for (size_t back = 0; back < 5; ++back) {
    for_each_ring(Operation::kReduce, [back](OneRank one) {
      if (back >= one.ranks()) return;
      const Numbers input = random_numbers(kCount, 100);
      Numbers expected(kCount);
      one.set_buffers(input, kCount);
      for (const auto& [begin, count] : chunks(one.chunk())) {
        Numbers reduced = part(input, begin, count);
        if (back != 1) reduced = sum(one.receives(one.back(1), count, 0), reduced);
        if (back > 0) one.sends(one.next(), reduced, 0);
        if (back == 0) put_part(expected, begin, reduced);
      }
      EXPECT_EQ(one.run(one.back(back)), expected);
    });
  }
}

TEST(CollectiveParts, OfAllReduceOverATree) {
  struct Place {
    int up;
    std::array<int, 3> down;
  };
  for (const Protocol protocol : kProtocols) {
    for (const Place& place : {Place{-1, {0, 3, -1}}, Place{-1, {4, -1, -1}}, Place{2, {0, 3, 4}},
                               Place{3, {0, -1, -1}}, Place{0, {-1, -1, -1}}}) {
      OneRank one(Operation::kAllReduce, Algorithm::kTree, protocol, 1, {0, 1, 2, 3, 4});
      one.communicator().set_tree(0, place.up, place.down);
      const Numbers input = random_numbers(kCount, 100);
      Numbers expected(kCount);
      one.set_buffers(input, kCount);
      std::vector<int> below;
      std::ranges::copy_if(place.down, std::back_inserter(below), [](int r) { return r >= 0; });
      for (const auto& [begin, count] : chunks(one.chunk())) {
        Numbers reduced = part(input, begin, count);
        for (const int rank : below) reduced = sum(reduced, one.receives(rank, count, 0));
        if (place.up >= 0) one.sends(place.up, reduced, 0);
        put_part(expected, begin, reduced);
      }
      for (const auto& [begin, count] : chunks(one.chunk())) {
        const Numbers whole =
            place.up < 0 ? part(expected, begin, count) : one.receives(place.up, count, 0);
        for (const int rank : below) one.sends(rank, whole, 0);
        put_part(expected, begin, whole);
      }
      EXPECT_EQ(one.run(), expected);
    }
  }
}

}  // namespace
}  // namespace pacecar::collective_parts_test
