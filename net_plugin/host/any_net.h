// A plugin's table of any version, called as if it were the newest. It does what NCCL does for old
// plugins. Thread rule: as the plugin's own; init before all else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "net_plugin/abi/tables.h"

namespace pacecar::nccl {

template <typename Pointer>
using Function = std::function<std::remove_pointer_t<Pointer>>;

// The members keep NCCL's names. A function that the plugin lacks is empty, or returns kSuccess
// where NCCL would not call it (finalize, setNetAttr).
struct AnyNet {
  int version = 0;  // of the table
  const char* name = nullptr;
  std::function<NcclResult(void** context, uint64_t comm_id, const CommConfig& config,
                           Logger logger, ProfilerCallback profiler)>
      init;  // Before version 11 the context means nothing, but is not nullptr when init succeeded.
  Function<decltype(NetV12::devices)> devices;
  // Properties that a version lacks get NCCL's default.
  Function<decltype(NetV12::getProperties)> getProperties;
  // Returns kInvalidUsage for more members than the version can express.
  std::function<NcclResult(int* device, const VirtualDeviceV12& members)> makeVDevice;
  Function<ListenV11> listen;
  Function<ConnectV11> connect;
  Function<AcceptV7> accept;
  // Return kInternalError for a size that the version cannot express.
  Function<RegMrV8> regMr;
  Function<IsendV10> isend;
  Function<IrecvV10> irecv;
  Function<decltype(NetV12::regMrDmaBuf)> regMrDmaBuf;
  Function<decltype(NetV12::deregMr)> deregMr;
  Function<decltype(NetV12::iflush)> iflush;
  Function<decltype(NetV12::test)> test;
  Function<decltype(NetV12::closeSend)> closeSend;
  Function<decltype(NetV12::closeRecv)> closeRecv;
  Function<decltype(NetV12::closeListen)> closeListen;
  Function<decltype(NetV12::finalize)> finalize;
  Function<decltype(NetV12::setNetAttr)> setNetAttr;
  CommConfig config{kUndefined};  // of init
};

// The table of this version in a loaded library, which outlives it; 0: the newest that there is, as
// NCCL chooses. nullptr: there is none.
std::unique_ptr<AnyNet> find_net(void* library, int version);

}  // namespace pacecar::nccl
