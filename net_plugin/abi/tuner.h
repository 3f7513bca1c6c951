// The tables of functions by which NCCL calls a tuner plugin: one symbol, ncclTunerPlugin_vN, per
// version, 2 to 6; NCCL 2.28 has 5. NCCL takes the newest, from the net plugin where no tuner is
// named.
//
// The members keep NCCL's names. What changed: 3 brought the table of costs in place of one choice,
// 4 whether buffers are registered, 5 who the communicator is and NCCL's constants, 6 chunk sizes.
// A context is one communicator's. Costs are microseconds, rows by algorithm, columns by protocol;
// what NCCL has ruled out is kRuledOut. An init that fails ends the communicator.
#pragma once

#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

constexpr int kOldestTuner = 2;
constexpr int kNewestTuner = 6;

// ncclFunc_t, as far as NCCL asks.
enum class TunedFunction : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
constexpr int kTunedFunctions = 5;

// NCCL_ALGO_*; version 3 began with six.
enum class TunedAlgorithm : int {
  kTree,
  kRing,
  kCollNetDirect,
  kCollNetChain,
  kNvls,
  kNvlsTree,
  kPat,
};
constexpr int kTunedAlgorithms = 7;

enum class TunedProtocol : int { kLl, kLl128, kSimple };  // NCCL_PROTO_*
constexpr int kTunedProtocols = 3;

constexpr float kRuledOut = -1.0F;
constexpr unsigned long kSubsystemTuning = 0x40;  // NCCL_DEBUG_SUBSYS

struct NvlDomainsV5 {
  int domains;
  int ranks_min;  // of a domain
  int ranks_max;
};

struct TunerConstants;  // NCCL's, to be changed at init; libraries differ in what is in them

struct TunerV2 {
  const char* name;
  NcclResult (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  NcclResult (*getCollInfo)(void* context, TunedFunction function, size_t bytes, int collnet,
                            int nvls, int operations, int* algorithm, int* protocol, int* channels);
  NcclResult (*destroy)(void* context);
};

// `costs` points to floats, though NCCL says otherwise.
struct TunerV3 {
  const char* name;
  NcclResult (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  NcclResult (*getCollInfo)(void* context, TunedFunction function, size_t bytes, int operations,
                            float** costs, int algorithms, int protocols, int* channels);
  NcclResult (*destroy)(void* context);
};

using GetCollInfoV4 = NcclResult (*)(void* context, TunedFunction function, size_t bytes,
                                     int operations, float** costs, int algorithms, int protocols,
                                     int registered, int* channels);

struct TunerV4 {
  const char* name;
  NcclResult (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  GetCollInfoV4 getCollInfo;
  NcclResult (*destroy)(void* context);
};

struct TunerV5 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger,
                     NvlDomainsV5* domains, TunerConstants* constants);
  GetCollInfoV4 getCollInfo;
  NcclResult (*finalize)(void* context);
};

struct TunerV6 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger,
                     NvlDomainsV5* domains, TunerConstants* constants);
  GetCollInfoV4 getCollInfo;
  NcclResult (*finalize)(void* context);
  // NULL: NCCL's own sizes.
  NcclResult (*getChunkSize)(void* context, TunedFunction function, size_t bytes, int algorithm,
                             int protocol, int channels, size_t* chunk_bytes);
};

static_assert(sizeof(TunedFunction) == 4 && sizeof(NvlDomainsV5) == 12);
static_assert(sizeof(TunerV2) == 32 && sizeof(TunerV3) == 32 && sizeof(TunerV4) == 32);
static_assert(sizeof(TunerV5) == 32 && sizeof(TunerV6) == 40);
static_assert(offsetof(TunerV2, getCollInfo) == 16 && offsetof(TunerV3, destroy) == 24);
static_assert(offsetof(TunerV5, finalize) == 24 && offsetof(TunerV6, getChunkSize) == 32);

}  // namespace pacecar::nccl
