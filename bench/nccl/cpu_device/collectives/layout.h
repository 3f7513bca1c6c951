// Where NCCL's host code leaves the work for its kernels: offsets in the structures of device.h, by
// version. work.h and connection.h have the parts that all versions share. A new version is a new
// row, after a comparison of device.h, of the rows that generate.py writes, and of collectives.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar::nccl::cpu {

// Absent in a version.
inline constexpr size_t kAbsent = ~size_t{0};

struct Layout {
  int first_version;  // as ncclGetVersion gives it
  int last_version;
  const char* name;

  struct {                  // ncclKernelComm, ncclDevComm before 2.28
    size_t work_consumed;   // pointer to u32 of each channel, written when work is stored in a FIFO
    size_t abort_flag;      // pointer to u32
    size_t work_started;    // pointer to the profiler's records of each channel
    size_t work_completed;  // the same
    size_t channel_array;   // the channels themselves, in the same allocation
  } comm;
  struct {  // ncclDevChannel
    size_t bytes;
    size_t ring_index;
    size_t tree;
    size_t work_counter;  // u64
  } channel;
  struct {  // ncclDevWorkColl
    size_t bytes;
    size_t registered_bytes;  // ncclDevWorkCollReg
    size_t receive;
    size_t send;
    size_t counts;                // of the lowest, each middle and the highest channel: three u64
    size_t chunks;                // three times 21 bits
    size_t operand;               // u64 redOpArg
    uint32_t operand_is_pointer;  // bits of the word at 0
    uint32_t registered;
    uint32_t net_registered;  // with the NIC: it reads and writes the user's buffers
    uint32_t one_rank_per_node;
    uint32_t profiled;
  } collective;
  size_t p2p_profiled_bit;  // of the byte at 46, kAbsent
  bool reversed_parts;      // a send's part of a channel has the channel's bits reversed
  bool signed_divisor;  // SumPostDiv: bit 0 says that the type is signed, the divisor is above it
  struct {              // rows of ncclDevFuncRowToId
    int types;
    bool pat;           // all-gather and reduce-scatter have it
    bool all_gather_v;  // three rows after broadcast
  } functions;
};

// nullptr: no row for this version.
const Layout* layout_of(int version);

// The names of all known versions, for people: "2.22.3, 2.29.7".
const char* known_versions();

}  // namespace pacecar::nccl::cpu
