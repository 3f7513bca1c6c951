// The windows that a group's ranks share: one's own memory, by the number that one gave it, and
// what peers have told of theirs.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gdr/staging.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::rma {

using WindowId = uint32_t;  // its owner's number; never given again

// What a rank says of a window of his.
struct Place {
  WindowId id = 0;
  Window window;
  bool staged = false;  // his NIC does not reach it: `window` has its length only
  bool operator==(const Place& other) const { return id == other.id; }
};

// Memory that all ranks share, each his own: what share() returns.
struct SharedWindow {
  const Memory* memory = nullptr;
  uint8_t* base = nullptr;    // ours
  std::vector<Place> places;  // by rank, our own among them
  uint32_t shares = 1;        // how often it was shared
};

// A word of ours. Of a GPU's memory it is read and written by copies; else by the processor.
struct Word {
  uint64_t* at = nullptr;
  std::shared_ptr<StagedRange> copies;  // null: of the host's memory
};

// Of a GPU in whose memory there are windows of ours.
struct WindowGpu {
  std::shared_ptr<const CopyEngine> engine;
  const Memory* direct = nullptr;  // that the NIC writes to, some of it; null: it reaches none
  const uint8_t* base = nullptr;   // of `direct`
};

class Windows {
 public:
  // Windows that a peer has announced, and that this rank has not: all share them in one order, so
  // nobody is further ahead than this.
  static constexpr size_t kMostAhead = 2;

  Windows(std::shared_ptr<Context> context, size_t nic, size_t ranks)
      : context_(std::move(context)), nic_(nic), announced_(ranks), known_(ranks) {}
  ~Windows();

  // Memory of ours; what has been registered already, by a longer range from the same address, is
  // not registered again. Errors: as register_memory and window_of.
  Result<Place> register_own(const MemoryRange& range);
  // One registration less.
  void release_own(WindowId id);

  // A peer has announced his next one. False: more than anybody may.
  bool announce(size_t rank, const Place& place);
  bool all_announced() const;
  // The window that all have announced; ours is `own`. The one that there is, if all mean that.
  SharedWindow* take_announced(size_t own_rank, const Place& own);
  // Once less. Memory that nobody shares any more is deregistered.
  void unshare(SharedWindow* window, size_t own_rank);

  // Bytes of ours that a peer has named; nullptr: there are none.
  uint8_t* own_bytes(WindowId id, uint64_t offset, uint64_t length) const;
  // Likewise, a word to which signals add; nullopt: there is none.
  std::optional<Word> own_word(WindowId id, uint64_t offset) const;
  const Memory* own_memory(WindowId id) const { return own_.at(id).memory; }
  // How bytes of a window of ours on a GPU are copied; null for the host's memory.
  std::shared_ptr<StagedRange> own_copies(WindowId id) const { return own_.at(id).copies; }
  // Each once.
  std::span<const WindowGpu> gpus() const { return gpus_; }
  // A window of that rank's; nullptr: there is none.
  const Place* find(size_t rank, WindowId id) const;

 private:
  struct Own {
    uint8_t* base = nullptr;
    uint64_t length = 0;
    const Memory* memory = nullptr;
    std::shared_ptr<StagedRange> copies;  // null: of the host's memory
    Place place;
    uint32_t registrations = 1;
  };
  struct Known {
    Place place;
    uint32_t shares = 0;
  };

  Result<Own> make_own(const MemoryRange& range);
  void give_up(const Own& own);
  void list_gpus();

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  WindowId next_id_ = 1;
  std::map<WindowId, Own> own_;
  std::vector<WindowGpu> gpus_;
  std::vector<std::deque<Place>> announced_;      // by rank
  std::vector<std::map<WindowId, Known>> known_;  // likewise
  std::list<SharedWindow> shared_;
};

}  // namespace pacecar::rma
