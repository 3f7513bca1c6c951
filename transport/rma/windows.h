// The windows that a group's ranks share: this rank's memory by number, and the peers' windows as
// advertised. Thread rule: one thread at a time.
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

// A one-sided operation, as its caller sees it. With the group's lock.
struct Operation {
  uint32_t left = 0;  // parts that are not done
  std::optional<Error> error;

  bool done() const { return left == 0 || error; }
  void fail(const Error& why) {
    if (!error) error = why;
  }
};

using WindowId = uint32_t;  // a number that the owner chooses and never reuses

// A rank's advertisement of a window.
struct Place {
  WindowId id = 0;
  Window window;
  bool staged = false;  // the rank's NIC does not reach it: only the length in `window` is set
  bool operator==(const Place& other) const { return id == other.id; }
};

// The result of share(): a window of each rank.
struct SharedWindow {
  const Memory* memory = nullptr;  // of this rank
  uint8_t* base = nullptr;         // of this rank's memory
  std::vector<Place> places;       // by rank, this one included
  uint32_t shares = 1;             // how often it was shared
};

// A word of this rank. In GPU memory copies read and write it, otherwise the processor.
struct Word {
  uint64_t* at = nullptr;
  std::shared_ptr<StagedRange> copies;  // null: host memory
};

struct OwnMemory {
  uint8_t* base = nullptr;
  uint64_t length = 0;
  const Memory* memory = nullptr;
  std::shared_ptr<StagedRange> copies;  // null: host memory
  Place place;
  uint32_t registrations = 1;
};

// A GPU with windows of this rank in its memory.
struct WindowGpu {
  std::shared_ptr<const CopyEngine> engine;
  const Memory* direct = nullptr;  // one that the NIC reaches; null: none
  const uint8_t* base = nullptr;   // of `direct`
};

class Windows {
 public:
  // The largest number of windows that a peer has announced and this rank has not. As all ranks
  // share windows in the same order, no peer can be further ahead.
  static constexpr size_t kMostAhead = 2;

  Windows(std::shared_ptr<Context> context, size_t nic, size_t ranks)
      : context_(std::move(context)), nic_(nic), announced_(ranks), known_(ranks) {}
  ~Windows();

  // Registers memory of this rank, unless a range from the same address that is at least as long is
  // registered already. Errors: as register_memory and window_of.
  Result<Place> register_own(const MemoryRange& range);
  // Ends one registration. If it was the last, peers cannot name the memory any more, and the
  // memory is returned: call deregister() once no put reads it.
  [[nodiscard]] std::optional<OwnMemory> release_own(WindowId id);
  void deregister(const OwnMemory& own);

  // A peer has announced its next window. False: too many.
  bool announce(size_t rank, const Place& place);
  bool announced(size_t rank) const { return !announced_[rank].empty(); }
  bool all_announced() const;
  // The window that all ranks have announced, which may exist already; `own`: this rank's place.
  SharedWindow* take_announced(size_t own_rank, const Place& own);
  // Ends one share(). Returns as release_own().
  [[nodiscard]] std::optional<OwnMemory> unshare(SharedWindow* window, size_t own_rank);

  // Bytes of this rank that a peer has named; nullptr: out of bounds.
  uint8_t* own_bytes(WindowId id, uint64_t offset, uint64_t length) const;
  // A word of this rank to which signals add; nullopt: out of bounds.
  std::optional<Word> own_word(WindowId id, uint64_t offset) const;
  const Memory* own_memory(WindowId id) const { return own_.at(id).memory; }
  // The copies of a window of this rank in GPU memory; null for host memory.
  std::shared_ptr<StagedRange> own_copies(WindowId id) const { return own_.at(id).copies; }
  // Each GPU once.
  std::span<const WindowGpu> gpus() const { return gpus_; }
  const Place* find(size_t rank, WindowId id) const;  // A window of that rank; nullptr: none.

 private:
  struct Known {
    Place place;
    uint32_t shares = 0;
  };

  Result<OwnMemory> make_own(const MemoryRange& range);
  void list_gpus();

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  WindowId next_id_ = 1;
  std::map<WindowId, OwnMemory> own_;
  std::vector<WindowGpu> gpus_;
  std::vector<std::deque<Place>> announced_;      // by rank
  std::vector<std::map<WindowId, Known>> known_;  // by rank
  std::list<SharedWindow> shared_;
};

}  // namespace pacecar::rma
