// FlushPair: an RC connection of the device to itself, for reads of memory that peers have written.
// On the bus the read follows the writes, and makes them visible to a GPU. Bounded: at most as many
// flushes at a time as the queue pair takes. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/fresh_pages.h"
#include "transport/verbs/lane.h"

namespace pacecar {

class FlushPair {
 public:
  // Flushes are numbered from `first` on; `lanes` is the configuration of this NIC's lanes.
  static Result<std::unique_ptr<FlushPair>> create(const VerbsDevice& device,
                                                   const LaneConfig& lanes, uint64_t first);

  // Reads the byte at `data` of a region that peers may read; returns the flush's number.
  // Errors: kUnavailable (too many at once), kSystem.
  Result<uint64_t> start(const MemoryRegion& region, const uint8_t* data);
  Result<bool> done(uint64_t flush);  // Errors: kSystem; when one flush fails, all pending ones do.
  void finish();                      // Waits until all flushes are done, for a bounded time.
  bool failed() const { return fault_.has_value(); }
  uint64_t next() const { return started_; }

 private:
  FlushPair(const VerbsDevice& device, const LaneConfig& lanes, uint64_t first);
  void poll();

  const std::string device_;
  const uint32_t port_;
  LaneConfig config_;
  // Each is made from those before it; the connection is destroyed before the memory that it uses.
  CompletionQueueHandle completions_;
  const OwnPages<uint8_t> byte_;
  MemoryHandle memory_;
  std::optional<Lane> lane_;
  const uint64_t first_;  // earlier numbers belong to a failed pair
  uint64_t started_;      // the next number
  uint64_t done_;         // all before this number are done
  std::optional<Error> fault_;
};

}  // namespace pacecar
