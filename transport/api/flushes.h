// Flushes of GPU memory by the NICs that wrote to it: each NIC reads, which orders its own writes
// only. A broken NIC is skipped if it has received nothing since that GPU's last flush; otherwise
// the flush fails, because its writes may not have reached the GPU.
//
// Bounded by what NICs accept at once. Thread rule: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/api/lane_list.h"
#include "transport/api/memory.h"
#include "transport/api/running_nic.h"

namespace pacecar {

class Flushes {
 public:
  // `nics` are those of one device, and outlive the flush. nullopt: host memory, or NICs that never
  // read. Errors: those of Nic::start_flush; kUnavailable if only some of the NICs read.
  Result<std::optional<FlushId>> start(std::span<const RunningNic> nics, const Memory& memory,
                                       const uint8_t* data);
  // For an id of start(). After true or an error the flush is over. Errors: those of Nic::flushed.
  Result<bool> done(FlushId flush);

 private:
  using Writer = std::pair<const Engine*, int>;  // a NIC, to one GPU
  struct Read {
    Engine* engine = nullptr;
    uint64_t number = 0;    // the NIC's
    uint64_t received = 0;  // bytes, before it began
  };
  struct Flush {
    int gpu = 0;
    std::array<Read, kMaxLanes> reads;
    size_t left = 0;
    uint32_t generation = 0;  // distinguishes a finished flush from a later one
  };

  FlushId keep(int gpu, std::span<const Read> reads);
  bool covered(const Writer& writer, uint64_t received) const;

  std::mutex mutex_;
  std::vector<Flush> flushes_;          // as many as were outstanding at once
  std::vector<uint32_t> free_;          // of them
  std::map<Writer, uint64_t> covered_;  // received bytes that a flush has covered
};

}  // namespace pacecar
