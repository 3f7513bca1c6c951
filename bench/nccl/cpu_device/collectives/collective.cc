// Collectives over rings and trees, as in device/all_reduce.h and its neighbours: which part of the
// buffers each primitive takes. The places of parts must match NCCL, as ranks may have real GPUs.
#include <algorithm>
#include <array>
#include <span>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "bench/nccl/cpu_device/collectives/transfers.h"

namespace pacecar::nccl::cpu {
namespace {

size_t grain_bytes(Protocol protocol) {
  constexpr std::array<size_t, 3> kGrains{16, 1920, 512};  // LL, LL128, SIMPLE
  return kGrains[static_cast<size_t>(protocol)];
}

// One work of a block. Offsets and counts are in elements.
class Collective {
 public:
  Collective(const Block& block, const Function& function, const CollectiveWork& work)
      : block_(block),
        protocol_(function.protocol),
        bytes_(size_of(function.type)),
        ranks_(static_cast<size_t>(block.ranks())),
        ring_(block.ring_ranks()),
        root_(work.root()),
        from_{block.before()},
        to_{block.after()},
        part_(work.part(block.channel_number(), grain_bytes(function.protocol), bytes_)),
        arithmetic_(arithmetic(block.layout(), function, work)),
        registered_(work.net_registered()),
        offloaded_(registered_ && work.one_rank_per_node()),
        input_(work.send()),
        output_(work.receive()) {}

  Task ring_all_reduce() {
    Transfers ring(block_, protocol_, kTwoByTwo, arithmetic_, {from_, to_, 0, registered_});
    const auto index = static_cast<size_t>(block_.ring_index());
    size_t chunk = part_.chunk;
    for (size_t begin = 0; begin < part_.count; begin += ranks_ * part_.chunk) {
      const size_t left = part_.count - begin;
      if (left < ranks_ * chunk) {
        const size_t unit = 16 / bytes_;
        chunk = ((left + ranks_ - 1) / ranks_ + unit - 1) / unit * unit;
      }
      // The chunk that starts `steps` ranks further back; of the last, it may be nothing.
      const auto place = [&](size_t steps) -> Piece {
        const size_t offset = (index + ranks_ - steps) % ranks_ * chunk;
        return {part_.begin + begin + offset, offset < left ? std::min(chunk, left - offset) : 0};
      };
      co_await ring.run(send_input(place(1)));
      for (size_t step = 2; step < ranks_; ++step) {
        Transfer sum = reduce_and_send(place(step));
        sum.place = output_at(place(step));
        if (registered_) sum.output = sum.place;
        co_await ring.run(sum);
      }
      co_await ring.run(reduce_into_output(place(ranks_), true));
      for (size_t step = 1; step + 1 < ranks_; ++step) {
        co_await ring.run(receive_and_send(place(step)));
      }
      co_await ring.run(receive(place(ranks_ - 1)));
    }
    if (registered_) co_await ring.leave_buffers();
  }

  Task ring_all_gather() {
    Transfers ring(block_, protocol_, offloaded_ ? Slices{} : kTwoByTwo, arithmetic_,
                   {from_, to_, 0, registered_}, offloaded_ ? kMostNetBytes : 0);
    for (const Piece piece : pieces(offloaded_ ? kMostNetBytes : part_.chunk)) {
      const auto of = [&](size_t index) { return of_rank(piece, index); };
      Transfer own = send_input(piece);
      const Piece own_place = of(0);
      if (own.input != output_at(own_place)) own.output = output_at(own_place);
      co_await ring.run(own);
      for (size_t step = 1; step + 1 < ranks_; ++step) {
        co_await ring.run(receive_and_send(of(ranks_ - step)));
      }
      co_await ring.run(receive(of(1)));
    }
    if (registered_) co_await ring.leave_buffers();
  }

  Task ring_reduce_scatter() {
    Transfers ring(block_, protocol_, kTwoByTwo, arithmetic_, {from_, to_});
    for (const Piece piece : pieces(part_.chunk)) {
      const auto of = [&](size_t index) { return of_rank(piece, index); };
      co_await ring.run(send_input(of(ranks_ - 1)));
      for (size_t step = 2; step < ranks_; ++step) {
        co_await ring.run(reduce_and_send(of(ranks_ - step)));
      }
      Transfer last = reduce_into_output(piece, false);
      last.input = input_at(of(0));
      co_await ring.run(last);
    }
  }

  Task ring_broadcast() {
    Transfers ring(block_, protocol_, {}, arithmetic_, {from_, to_, 0, registered_});
    for (const Piece piece : pieces(part_.chunk)) {
      if (ring_[0] == root_) {
        Transfer own = send_input(piece);
        if (own.input != output_at(piece)) own.output = output_at(piece);
        co_await ring.run(own);
      } else if (ring_[1] == root_) {
        co_await ring.run(receive(piece));
      } else {
        co_await ring.run(receive_and_send(piece));
      }
    }
    if (registered_) co_await ring.leave_buffers();
  }

  Task ring_reduce() {
    Transfers ring(block_, protocol_, {}, arithmetic_, {from_, to_});
    for (const Piece piece : pieces(part_.chunk)) {
      if (ring_[ranks_ - 1] == root_) {
        co_await ring.run(send_input(piece));
      } else if (block_.rank() == root_) {
        co_await ring.run(reduce_into_output(piece, false));
      } else {
        co_await ring.run(reduce_and_send(piece));
      }
    }
  }

  Task by_pat(Operation operation) {
    return pat(block_, operation, part_, arithmetic_, input_, output_);
  }

  // First everything up, then everything down: a GPU's two groups of threads do both at once, on
  // the same steps.
  Task tree_all_reduce() {
    const std::array up{block_.up()};
    const std::span down(block_.down(), 3);
    const bool is_root = block_.up() < 0;
    const bool is_leaf = block_.down()[0] < 0;
    {
      Transfers tree(block_, protocol_, {}, arithmetic_, {down, up});
      for (const Piece piece : pieces(part_.chunk)) {
        if (is_root) {
          co_await tree.run(reduce_into_output(piece, false));
        } else {
          co_await tree.run(is_leaf ? send_input(piece) : reduce_and_send(piece));
        }
      }
    }
    Transfers tree(block_, protocol_, {}, arithmetic_, {up, down});
    for (const Piece piece : pieces(part_.chunk)) {
      if (is_root) {
        co_await tree.run({.sends = true,
                           .input = output_at(piece),
                           .input_is_own = false,
                           .elements = piece.count});
      } else {
        co_await tree.run(is_leaf ? receive(piece) : receive_and_send(piece));
      }
    }
  }

 private:
  using Transfer = Transfers::Transfer;
  struct Piece {
    size_t begin;
    size_t count;
  };
  static constexpr Slices kTwoByTwo{.per_chunk = 2, .steps_each = 2};

  static Arithmetic arithmetic(const Layout& layout, const Function& function,
                               const CollectiveWork& work) {
    uint64_t operand = 0;
    bool is_signed = static_cast<int>(function.type) % 2 == 0;
    const bool scalar = function.reduction == Reduction::kPreMultipliedSum;
    operand = work.operand(scalar ? size_of(function.type) : sizeof(operand));
    if (function.reduction == Reduction::kSumPostDivided && layout.signed_divisor) {
      is_signed = (operand & 1) != 0;
      operand >>= 1;
    }
    return {function.reduction, function.type, operand, is_signed};
  }

  std::vector<Piece> pieces(size_t chunk) const {
    std::vector<Piece> all;
    for (size_t begin = 0; begin < part_.count; begin += chunk) {
      all.push_back({part_.begin + begin, std::min(chunk, part_.count - begin)});
    }
    return all;
  }

  // The same piece of the share of the ring's rank `index`.
  Piece of_rank(Piece piece, size_t index) const {
    return {piece.begin + static_cast<size_t>(ring_[index]) * part_.total, piece.count};
  }
  const char* input_at(Piece piece) const { return input_ + piece.begin * bytes_; }
  char* output_at(Piece piece) const { return output_ + piece.begin * bytes_; }

  Transfer send_input(Piece piece) const {
    return {.sends = true, .input = input_at(piece), .elements = piece.count};
  }
  Transfer receive(Piece piece) const {
    return {.receives = true,
            .output = output_at(piece),
            .place = output_at(piece),
            .elements = piece.count};
  }
  Transfer receive_and_send(Piece piece) const {
    Transfer both = receive(piece);
    both.sends = true;
    return both;
  }
  Transfer reduce_and_send(Piece piece) const {
    return {.receives = true, .sends = true, .input = input_at(piece), .elements = piece.count};
  }
  Transfer reduce_into_output(Piece piece, bool sends) const {
    return {.receives = true,
            .sends = sends,
            .input = input_at(piece),
            .output = output_at(piece),
            .place = output_at(piece),
            .elements = piece.count,
            .completes = true};
  }

  const Block& block_;
  const Protocol protocol_;
  const size_t bytes_;  // of an element
  const size_t ranks_;
  const int* const ring_;
  const int root_;
  const std::array<int, 1> from_;  // the ring's neighbours
  const std::array<int, 1> to_;
  const CollectiveWork::Part part_;
  const Arithmetic arithmetic_;
  const bool registered_;  // with the NIC
  const bool offloaded_;   // so is everything: a step is as large as the NIC allows
  const char* const input_;
  char* const output_;
};

}  // namespace

Task collective(const Block& block, const Function& function, const CollectiveWork& work) {
  if (work.peer_registered()) not_played("peer access between GPUs", "NCCL_P2P_DISABLE=1");
  Collective made(block, function, work);
  const bool ring = function.algorithm == Algorithm::kRing;
  if (function.algorithm == Algorithm::kPat) co_return co_await made.by_pat(function.operation);
  switch (function.operation) {
    case Operation::kAllReduce:
      if (ring) co_return co_await made.ring_all_reduce();
      if (function.algorithm == Algorithm::kTree) co_return co_await made.tree_all_reduce();
      break;
    case Operation::kAllGather:
      if (ring) co_return co_await made.ring_all_gather();
      break;
    case Operation::kReduceScatter:
      if (ring) co_return co_await made.ring_reduce_scatter();
      break;
    case Operation::kBroadcast: co_return co_await made.ring_broadcast();
    case Operation::kReduce: co_return co_await made.ring_reduce();
    default: break;
  }
  not_played("an algorithm other than ring, tree and PAT", "NCCL_ALGO=RING,TREE,PAT");
}

Task broadcasts(const Block& block, Protocol protocol, const std::vector<BroadcastWork>& works) {
  const std::array from{block.before()};
  const std::array to{block.after()};
  const Arithmetic bytes(Reduction::kSum, Type::kUint8, 0, false);
  Transfers ring(block, protocol, {}, bytes, {from, to});
  bool any_left = true;
  for (size_t turn = 0; any_left; ++turn) {
    any_left = false;
    for (const BroadcastWork& work : works) {
      const size_t begin = turn * work.chunk;
      if (begin >= work.bytes) continue;
      any_left = true;
      const bool is_root = work.from_root == 0;
      co_await ring.run({.receives = !is_root,
                         .sends = work.from_root != block.ranks() - 1,
                         .input = is_root ? work.send + begin : nullptr,
                         .output = work.receive + begin,
                         .elements = std::min(work.chunk, work.bytes - begin)});
    }
  }
}

}  // namespace pacecar::nccl::cpu
