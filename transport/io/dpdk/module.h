// What calls DPDK lives in shared objects of its own, modules, which are loaded when a device of
// DPDK is asked for: a host without DPDK lacks nothing else. DPDK's fast path is inline in its
// headers and uses its variables, so that no table of functions could take the libraries' place.
//
// A module has copies of what it needs of the layers below, all of it hidden, and gives one
// function away. What crosses the border is what both know by the same headers: PacketIo's virtual
// functions, and values of types without state of their own. No exception does.
#pragma once

#include <string>

#include "transport/base/result.h"

namespace pacecar {

// The one symbol of a module, `pacecar_module`.
struct DpdkModule {
  const char* build;  // a digest of all headers that both sides include, and of the compiler
  void (*open)();     // in truth of the type that the one who loads it names
};

// Loads a module, and DPDK with it; both stay. It is looked for in the folder pacecar beside the
// program or library that has this code, there in the installed libraries' place, and then where
// the system looks for libraries. Any thread. Errors: kUnavailable.
Result<const DpdkModule*> load_dpdk_module(const std::string& file);

template <typename Function>
Result<Function*> load_dpdk_function(const std::string& file) {
  const auto module = load_dpdk_module(file);
  if (!module) return tl::unexpected(module.error());
  return reinterpret_cast<Function*>((*module)->open);
}

}  // namespace pacecar

// In one file of a module.
#define PACECAR_DPDK_MODULE(function)                                                 \
  extern "C" [[gnu::visibility("default")]] const pacecar::DpdkModule pacecar_module; \
  const pacecar::DpdkModule pacecar_module = {PACECAR_DPDK_BUILD,                     \
                                              reinterpret_cast<void (*)()>(&(function))}
