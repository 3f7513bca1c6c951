// The tables of functions by which NCCL calls a tuner plugin: one symbol, ncclTunerPlugin_vN, per
// version, 3 to 7; NCCL 2.28 has 5, 2.32.6 has 7. NCCL takes the newest, from the net plugin if no
// other tuner is named. The members keep NCCL's names. What changed: 3 brought the table of costs
// in place of one choice, 4 whether buffers are registered, 5 the communicator's number and
// constants, 6 chunk sizes, 7 other constants. A context belongs to one communicator. Costs:
// microseconds, by algorithm (rows) and protocol (columns); ruled-out choices are kRuledOut. An
// init that fails ends the communicator.
#pragma once

#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

constexpr int kOldestTuner = 3;
constexpr int kNewestTuner = 7;

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

struct NvlDomainsV5 {
  int domains;
  int ranks_min;  // of a domain
  int ranks_max;
};

struct TunerConstants;  // of NCCL: a tuner may change them at init; versions of NCCL differ in them

// `costs` points to floats, though NCCL's type is another.
using GetCollInfoV3 = NcclResult (*)(void* context, TunedFunction function, size_t bytes,
                                     int operations, float** costs, int algorithms, int protocols,
                                     int* channels);
using GetCollInfoV4 = NcclResult (*)(void* context, TunedFunction function, size_t bytes,
                                     int operations, float** costs, int algorithms, int protocols,
                                     int registered, int* channels);

template <typename GetCollInfo>
struct TunerV3V4 {
  const char* name;
  NcclResult (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  GetCollInfo getCollInfo;
  NcclResult (*destroy)(void* context);
};
using TunerV3 = TunerV3V4<GetCollInfoV3>;
using TunerV4 = TunerV3V4<GetCollInfoV4>;

struct TunerV5 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger,
                     NvlDomainsV5* domains, TunerConstants* constants);
  GetCollInfoV4 getCollInfo;
  NcclResult (*finalize)(void* context);
};
struct TunerV6 : TunerV5 {
  // NULL: NCCL's own sizes. Else called once for each collective, after the choice; NCCL cuts the
  // size to its buffers and to whole grains of the protocol.
  NcclResult (*getChunkSize)(void* context, TunedFunction function, size_t bytes, int algorithm,
                             int protocol, int channels, size_t* chunk_bytes);
};
using TunerV7 = TunerV6;

static_assert(sizeof(TunedFunction) == 4 && sizeof(NvlDomainsV5) == 12);
static_assert(sizeof(TunerV3) == 32 && sizeof(TunerV5) == 32 && sizeof(TunerV6) == 40);
static_assert(offsetof(TunerV3, getCollInfo) == 16 && offsetof(TunerV5, finalize) == 24);

}  // namespace pacecar::nccl
