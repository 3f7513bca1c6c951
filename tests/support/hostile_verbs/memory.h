// The memory regions of a device, and how data lands in them. GPU memory is mapped twice: at the
// program's address no processor can access it, the device uses the other mapping.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "tests/support/hostile_verbs/behavior.h"
#include "transport/base/prng.h"

namespace pacecar::hostile {

// GPU memory, which no processor can read or write at the returned address.
void* allocate_gpu_memory(size_t length);
void free_gpu_memory(void* address);
// A dma-buf, which the caller closes. -1: not GPU memory.
int dma_buf_of(const void* address);
// The address at which the GPU accesses it. Null: not GPU memory.
uint8_t* as_gpu_sees(const void* address);

struct Region {
  ibv_mr verbs{};
  uint64_t begin = 0;  // its address in requests
  uint64_t length = 0;
  uint8_t* memory = nullptr;  // the device's mapping
  bool gpu = false;
  bool mapped = false;  // by us, from a dma-buf
  int access = 0;

  bool covers(uint64_t address, uint64_t bytes) const {
    return address >= begin && bytes <= length && address - begin <= length - bytes;
  }
  uint8_t* at(uint64_t address) const { return memory + (address - begin); }
  ~Region();
};

class Regions {
 public:
  // Null, with errno: refused.
  Region* add(ibv_pd* domain, void* address, uint64_t length, uint64_t begin, int access);
  Region* add_dma_buf(ibv_pd* domain, int fd, uint64_t offset, uint64_t length, uint64_t begin,
                      int access);
  void remove(const Region& region) { by_key_.erase(region.verbs.lkey); }
  // Null: no such key in this domain.
  Region* find(uint32_t key, const ibv_pd* domain) const;
  size_t size() const { return by_key_.size(); }
  bool any_in(const ibv_pd* domain) const;
  // Appends the regions that were registered by their address.
  void list(std::vector<std::span<const uint8_t>>& all) const;

 private:
  Region* keep(std::unique_ptr<Region> region, ibv_pd* domain, void* address);

  std::unordered_map<uint32_t, std::unique_ptr<Region>> by_key_;
  uint32_t next_key_ = 0x101;
};

// The data of one queue pair on its way from the device to memory, and actions for when all data
// before them has landed.
class Landing {
 public:
  Landing(const Behavior& behavior, Prng& prng) : behavior_(behavior), prng_(prng) {}

  void write(Region& region, uint64_t address, const std::vector<uint8_t>& data);
  void then(std::function<void()> what);
  // A tick of the device: some of the data lands.
  void advance();
  // All data lands at once, in GPU memory too.
  void finish();
  bool idle() const { return steps_.empty() && gpu_.empty(); }

 private:
  struct Piece {
    uint8_t* to;
    std::vector<uint8_t> data;
    bool relaxed;
  };
  struct Step {
    std::vector<Piece> pieces;  // land before `then`
    std::function<void()> then;
  };

  void land_some(std::vector<Piece>& pieces, bool relaxed);
  static void land(const Piece& piece);

  const Behavior& behavior_;
  Prng& prng_;
  std::deque<Step> steps_;
  std::vector<Piece> gpu_;
};

}  // namespace pacecar::hostile
