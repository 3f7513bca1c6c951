// Flushes of GPU memory by the NICs that wrote to it: each reads, and orders its own writes only. A
// NIC that cannot read any more is left out if it has received nothing since that GPU's last flush;
// else there is no flush: what it wrote may be anywhere between it and the GPU.
//
// Bounded: what NICs take at once. Thread rule: any thread.
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
  // `nics` are those of one device, and outlive it. nullopt: memory of the host, or of NICs that
  // never read. Errors: those of Nic::start_flush; kUnavailable where some read and some do not.
  Result<std::optional<FlushId>> start(std::span<const RunningNic> nics, const Memory& memory,
                                       const uint8_t* data);
  // Of start(); once it is true or an error, it is over. Errors: those of Nic::flushed.
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
    uint32_t generation = 0;  // so that one that is over is not taken for a later one
  };

  FlushId keep(int gpu, std::span<const Read> reads);
  bool covered(const Writer& writer, uint64_t received) const;

  std::mutex mutex_;
  std::vector<Flush> flushes_;          // as many as have been under way at once
  std::vector<uint32_t> free_;          // of them
  std::map<Writer, uint64_t> covered_;  // bytes received that some flush has pushed
};

}  // namespace pacecar
