// NCCL's primitives: receive from some ranks, reduce, send to some ranks, step by step, in one of
// three protocols. One group of transfers has fixed ends and buffers; its steps are counted on when
// the next group begins. Thread rule: one block.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "bench/nccl/cpu_device/collectives/block.h"
#include "bench/nccl/cpu_device/collectives/connection.h"
#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "bench/nccl/cpu_device/coroutine.h"

namespace pacecar::nccl::cpu {

// How SIMPLE divides a chunk. Both ends must agree; NCCL fixes it by operation and algorithm.
struct Slices {
  uint32_t per_chunk = 1;
  uint32_t steps_each = 1;
};

struct Ends {
  std::span<const int> receive_from{};  // ends at the first -1
  std::span<const int> send_to{};
  int connection = 0;       // 0 of collectives, 1 of send and receive
  bool registered = false;  // the NIC reads sent and writes received data in user buffers
};

inline constexpr size_t kMostNetBytes = size_t{1} << 30;  // of a step of registered buffers

class Transfers {
 public:
  // `step_bytes` of SIMPLE; 0: an eighth of the communicator's buffer.
  Transfers(const Block& block, Protocol protocol, Slices slices, const Arithmetic& arithmetic,
            const Ends& ends, size_t step_bytes = 0);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // One primitive, on `elements` elements.
  struct Transfer {
    bool receives = false;
    bool sends = false;
    const char* input = nullptr;  // nullptr: none. Is reduced with the received data
    bool input_is_own = true;     // false: a result, which is not prepared (Arithmetic::prepare)
    char* output = nullptr;       // nullptr: none. Gets the sent data as well
    char* place = nullptr;        // of registered buffers: where the NIC has put received data
    size_t elements = 0;
    bool completes = false;  // the reduction is whole: Arithmetic::finish
  };
  Task run(Transfer transfer);
  // To be awaited at the end of a group of registered buffers: until the NIC has read them.
  Task leave_buffers();

 private:
  static constexpr size_t kMostPeers = 3;
  struct Side {
    std::array<Connection, kMostPeers> peers;
    size_t count = 0;
    std::span<Connection> all() { return {peers.data(), count}; }
  };
  using Pointers = std::array<char*, kMostPeers>;

  Task simple(Transfer transfer);
  Task ll(Transfer transfer);
  Task ll128(Transfer transfer);
  // Words of 4 bytes of data and 4 of the flag.
  Task receive_words(const uint64_t* from, size_t words, uint64_t flag, uint32_t* to) const;
  // NCCL registers sends and receives only where NICs reach users; 2.22 does not mark receivers.
  bool in_place(const Connection& peer) const {
    return registered_ && (of_pairs_ || peer.reaches_users());
  }
  void combine(const Transfer& transfer, std::span<char* const> received,
               std::span<char* const> sent) const;
  void begin_side(Side& side, std::span<const int> ranks, bool sends, int connection);

  const Block& block_;
  const Protocol protocol_;
  const Slices slices_;
  const Arithmetic arithmetic_;
  const size_t element_bytes_;
  const size_t slice_elements_;  // of SIMPLE
  const bool registered_;
  const bool of_pairs_;
  Side receive_;
  Side send_;
};

}  // namespace pacecar::nccl::cpu
