// Each rank names the others by their distance: rank + distance, modulo the ranks. The parent
// of a distance is the distance without its lowest bit. In an all-gather, piece `distance` is the
// input of that rank; it comes from the rank further by the lowest bit, whose piece `parent` it is.
// A reduce-scatter goes the other way: sum `distance` is for that rank; it is sent to the rank
// further by the lowest bit, and added there to sum `parent`.
//
// Which pieces share a message, and in which order messages are sent to a neighbour, must match
// PatAGAlgorithm and PatRSAlgorithm of collectives.h, by which NCCL's proxy threads count steps.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "bench/nccl/cpu_device/collectives/connection.h"
#include "bench/nccl/cpu_device/gpu.h"

namespace pacecar::nccl::cpu {
namespace {

size_t lowest_bit(size_t distance) { return distance & (~distance + 1); }
size_t parent(size_t distance) { return distance & (distance - 1); }

// Offsets and counts are in elements.
class Pat {
 public:
  Pat(const Block& block, bool reduces, const CollectiveWork::Part& part,
      const Arithmetic& arithmetic, const char* input, char* output)
      : block_(block),
        reduces_(reduces),
        part_(part),
        arithmetic_(arithmetic),
        input_(input),
        output_(output),
        rank_(static_cast<size_t>(block.rank())),
        ranks_(static_cast<size_t>(block.ranks())),
        bound_(std::bit_ceil(ranks_)),
        pieces_(bound_) {
    size_t together = 1;
    while (2 * together * part.count <= part.chunk && together < ranks_ / 2) together *= 2;
    in_message_ = together;
    // As many messages as a connection has buffers are on their way at a time.
    for (uint64_t messages = 1; messages < kSteps && together < ranks_ / 2; messages *= 2) {
      together *= 2;
    }
    interval_ = bound_ / together;
    connect();
    for (size_t first = interval_ - 1; first > 0; --first) place(group(first, interval_));
    for (size_t far = interval_; far < bound_; far *= 2) place(group(far, 2 * far));
  }

  Task run() {
    const size_t end = part_.begin + part_.count;
    for (begin_ = part_.begin; begin_ < end; begin_ += part_.chunk) {
      count_ = std::min(part_.chunk, end - begin_);
      if (reduces_) {
        co_await reduce_scatter();
      } else {
        co_await all_gather();
      }
      for (Way& way : ways_) {
        for (Connection* const one : {&way.from, &way.to}) {
          one->step += way.messages;
          one->save();
        }
      }
      for (Piece& piece : pieces_) piece.begun = false;
    }
  }

 private:
  // The two neighbours at a distance of a power of two.
  struct Way {
    Connection from;
    Connection to;
    uint64_t messages = 0;  // of a chunk
  };
  // Where a piece lies among the pieces that go the same way. Distance 0 and distances without a
  // rank (`ranks_` and above) send nothing.
  struct Piece {
    uint64_t message = 0;
    size_t place = 0;
    bool ends_message = false;
    bool begun = false;  // the sum has this rank's own input
  };

  void connect() {
    for (size_t far = 1; far < ranks_; far *= 2) {
      const auto after = static_cast<int>((rank_ + far) % ranks_);
      const auto before = static_cast<int>((rank_ + ranks_ - far) % ranks_);
      ways_.push_back({Connection(block_.connection(reduces_ ? before : after, false, 0)),
                       Connection(block_.connection(reduces_ ? after : before, true, 0))});
    }
  }

  // Distances whose pieces go the same way at the same time. A reduce-scatter begins with those
  // that are added to others of the group: bits reversed, from the greatest.
  std::vector<size_t> group(size_t first, size_t interval) const {
    const auto count = static_cast<uint32_t>(bound_ / interval);
    std::vector<size_t> all;
    for (uint32_t i = 0; i < count; ++i) {
      all.push_back(first + interval * (reduces_ ? count - 1 - reversed_bits(i, count) : i));
    }
    return all;
  }

  // The place of a distance without a rank stays empty.
  void place(const std::vector<size_t>& group) {
    uint64_t& messages = way(group.front()).messages;
    for (size_t begin = 0; begin < group.size(); begin += in_message_) {
      Piece* last = nullptr;
      for (size_t i = begin; i < std::min(begin + in_message_, group.size()); ++i) {
        if (group[i] >= ranks_) continue;
        last = &pieces_[group[i]];
        *last = {.message = messages, .place = i - begin};
      }
      if (last == nullptr) continue;
      last->ends_message = true;
      ++messages;
    }
  }

  // First the far pieces, which reach most ranks, then the others depth first: a piece's children
  // follow it, so that its buffer is free again soon.
  Task all_gather() {
    for (size_t far = bound_ / 2; far >= interval_; far /= 2) {
      for (const size_t piece : group(far, 2 * far)) co_await pass_on(piece);
    }
    size_t first = interval_ / 2;
    while (first != 0) {
      const bool is_leaf = first % 2 == 1;
      const std::vector<size_t> pieces = group(first, interval_);
      for (const size_t piece : pieces) {
        co_await pass_on(piece);
        if (is_leaf) co_await keep(parent(piece));
      }
      if (is_leaf) {
        for (const size_t piece : pieces) co_await keep(piece);
      }
      first =
          is_leaf ? parent(first) - lowest_bit(parent(first)) / 2 : first + lowest_bit(first) / 2;
    }
  }

  // The other way round.
  Task reduce_scatter() {
    for (size_t first = interval_ - 1; first > 0; --first) {
      const std::vector<size_t> sums = group(first, interval_);
      if (first % 2 == 1) {
        for (const size_t sum : sums) {
          co_await begin(sum);
          post(sum);
        }
      }
      if (first == 1) break;  // these complete the sums that follow
      for (const size_t sum : sums) co_await add(sum);
    }
    for (size_t far = interval_; far < bound_; far *= 2) {
      const std::vector<size_t> sums = group(far, 2 * far);
      for (const size_t sum : sums) co_await add(sum + 1);
      for (const size_t sum : sums) co_await add(sum);
    }
    co_await add(1);
  }

  // Sends a piece of the receiver's distance.
  Task pass_on(size_t piece) {
    if (piece >= ranks_) co_return;
    co_await arrival(parent(piece));
    co_await room(piece);
    copy(buffer(to(piece), piece), source(parent(piece)));
    post(piece);
  }

  // Copies a received piece to the output: its last use.
  Task keep(size_t piece) {
    if (piece >= ranks_) co_return;
    co_await arrival(piece);
    copy(output_ + share(piece), source(piece));
    release(piece);
  }

  // With this rank's own input.
  Task begin(size_t sum) {
    if (sum >= ranks_ || pieces_[sum].begun) co_return;
    co_await room(sum);
    copy(target(sum), input_ + share(sum));
    pieces_[sum].begun = true;
  }

  // Adds a received sum to its parent, which is complete after its child at a distance of 1.
  Task add(size_t received) {
    const size_t sum = parent(received);
    if (sum >= ranks_) co_return;
    co_await begin(sum);
    if (received < ranks_) {
      co_await arrival(received);
      arithmetic_.reduce(target(sum), source(received), count_);
      release(received);
    }
    if (received == sum + 1) post(sum);
  }

  Task arrival(size_t piece) {
    while (piece != 0 && from(piece).filled() <= from(piece).step) co_await block_.wait();
  }
  Task room(size_t piece) {
    while (piece != 0 && !to(piece).has_room(1)) co_await block_.wait();
  }
  void post(size_t piece) {
    note_progress();
    if (!pieces_[piece].ends_message) return;
    const Connection at = to(piece);
    at.announce((pieces_[piece].place + 1) * bytes());
    at.set_filled(at.step + 1);
  }
  void release(size_t piece) {
    note_progress();
    if (pieces_[piece].ends_message) from(piece).set_freed(from(piece).step + 1);
  }

  Way& way(size_t piece) { return ways_[static_cast<size_t>(std::countr_zero(piece))]; }
  // At the step of its message.
  Connection from(size_t piece) { return at_message(way(piece).from, piece); }
  Connection to(size_t piece) { return at_message(way(piece).to, piece); }
  Connection at_message(Connection connection, size_t piece) const {
    connection.step += pieces_[piece].message;
    return connection;
  }
  char* buffer(const Connection& connection, size_t piece) const {
    return connection.simple_buffer() + pieces_[piece].place * bytes();
  }
  const char* source(size_t piece) {
    return piece == 0 ? input_ + begin_ * arithmetic_.element_bytes() : buffer(from(piece), piece);
  }
  char* target(size_t sum) {
    return sum == 0 ? output_ + begin_ * arithmetic_.element_bytes() : buffer(to(sum), sum);
  }

  size_t bytes() const { return count_ * arithmetic_.element_bytes(); }
  // Where the larger of the user's buffers has a piece, in bytes.
  size_t share(size_t distance) const {
    return ((rank_ + distance) % ranks_ * part_.total + begin_) * arithmetic_.element_bytes();
  }
  void copy(char* to, const char* from) const {
    if (to != from) std::memcpy(to, from, bytes());
  }

  const Block& block_;
  const bool reduces_;
  const CollectiveWork::Part part_;
  const Arithmetic arithmetic_;
  const char* const input_;
  char* const output_;
  const size_t rank_;
  const size_t ranks_;
  const size_t bound_;  // of distances, a power of two
  std::vector<Piece> pieces_;
  size_t in_message_ = 1;
  size_t interval_ = 1;  // between distances of a group
  std::vector<Way> ways_;
  size_t begin_ = 0;  // of the chunk
  size_t count_ = 0;
};

}  // namespace

Task pat(const Block& block, Operation operation, const CollectiveWork::Part& part,
         const Arithmetic& arithmetic, const char* input, char* output) {
  Pat made(block, operation == Operation::kReduceScatter, part, arithmetic, input, output);
  co_await made.run();
}

}  // namespace pacecar::nccl::cpu
