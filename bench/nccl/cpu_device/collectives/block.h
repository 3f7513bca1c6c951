// One block of a kernel: a channel of a communicator, seen by a rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/nccl/cpu_device/collectives/layout.h"
#include "bench/nccl/cpu_device/collectives/raw.h"
#include "bench/nccl/cpu_device/coroutine.h"

namespace pacecar::nccl::cpu {

// Thrown where a block waits, after ncclCommAbort.
struct Aborted {};

// Ends the program: NCCL asks for something that is not played here. `cure` says how to avoid it.
[[noreturn]] void not_played(const char* what, const char* cure);

class Block {
 public:
  Block(const Layout& layout, char* communicator, int channel)
      : layout_(layout),
        communicator_(communicator),
        channel_number_(channel),
        channel_(communicator + layout.comm.channel_array +
                 static_cast<size_t>(channel) * layout.channel.bytes),
        abort_flag_(pointer<uint32_t>(communicator, layout.comm.abort_flag)) {}

  const Layout& layout() const { return layout_; }
  char* communicator() const { return communicator_; }
  char* channel() const { return channel_; }
  int channel_number() const { return channel_number_; }

  int rank() const { return field<int>(communicator_, 0); }
  int ranks() const { return field<int>(communicator_, 4); }
  size_t buffer_bytes(int protocol) const {
    return field<uint32_t>(communicator_, 16 + 4 * static_cast<size_t>(protocol));
  }
  size_t p2p_step_bytes() const { return field<uint32_t>(communicator_, 28); }

  // The ring of this channel.
  int before() const { return field<int>(channel_, 8); }
  int after() const { return field<int>(channel_, 12); }
  // The ranks from this one on, as they follow each other.
  const int* ring_ranks() const { return pointer<int>(channel_, 16); }
  int ring_index() const { return field<int>(channel_, 8 + layout_.channel.ring_index); }
  // The tree of this channel; -1 for nobody.
  int up() const { return field<int>(channel_, layout_.channel.tree + 4); }
  const int* down() const {  // three ranks
    return reinterpret_cast<const int*>(channel_ + layout_.channel.tree + 8);
  }

  // The connection (ncclConnInfo) to or from a rank.
  char* connection(int rank, bool sends, int index) const {
    constexpr size_t kConnectionBytes = 152;
    char* const peers = pointer(channel_, 0);
    char* const peer = pointer(peers, static_cast<size_t>(rank) * sizeof(char*));
    return peer + kConnectionBytes * (static_cast<size_t>(index) + (sends ? 0 : 2));
  }

  // For a block that waits: `while (!ready) co_await block.wait();`
  Fiber::Pause wait() const {
    if (load_acquire(abort_flag_) != 0) throw Aborted();
    return pause();
  }

 private:
  const Layout& layout_;
  char* communicator_;
  int channel_number_;
  char* channel_;
  const uint32_t* abort_flag_;
};

}  // namespace pacecar::nccl::cpu
