// Flushes of GPU memory by the NICs that wrote to it: each NIC reads, which orders only its own
// writes. A broken NIC is skipped if it has received nothing since that GPU's last flush. Otherwise
// the flush fails, as the NIC's writes may not have reached the GPU. Bound: the flushes that the
// NICs accept at once. Thread rule: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "transport/api/lane_list.h"
#include "transport/api/memory.h"
#include "transport/engine/engine.h"

namespace pacecar {

// A NIC of a Context: its description, and the engine that drives it.
struct RunningNic {
  NicInfo info;
  std::shared_ptr<Engine> engine;
  Subnet subnet = {};  // of its address
};

class Flushes {
 public:
  // `nics` belong to one device, and outlive the flush. nullopt: not needed (host memory, or NICs
  // that never read). Errors: as Nic::start_flush; kUnavailable if only some of the NICs read.
  Result<std::optional<FlushId>> start(std::span<const RunningNic> nics, const Memory& memory,
                                       const uint8_t* data);
  // `flush`: of start(). After true or an error the flush has ended. Errors: as Nic::flushed.
  Result<bool> done(FlushId flush);

 private:
  using Writer = std::pair<const Engine*, int>;  // a NIC, to one GPU
  struct Read {
    Engine* engine = nullptr;
    uint64_t number = 0;    // of Nic::start_flush
    uint64_t received = 0;  // bytes that the NIC had received before
  };
  struct Flush {
    int gpu = 0;
    std::array<Read, kMaxLanes> reads;
    size_t left = 0;
  };

  FlushId add(int gpu, std::span<const Read> reads);
  bool covered(const Writer& writer, uint64_t received) const;

  std::mutex mutex_;
  FlushId last_ = 0;
  std::map<FlushId, Flush> flushes_;    // that have not ended
  std::map<Writer, uint64_t> covered_;  // received bytes that a flush has made visible
};

}  // namespace pacecar
