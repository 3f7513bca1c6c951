// Modules: shared objects with the code that calls DPDK, loaded when a DPDK device is used. A host
// without DPDK lacks these devices only. DPDK's fast path is inline in its headers and uses its
// variables, so a table of functions could not replace its libraries.
// A module has hidden copies of the lower layers that it needs, and exports one symbol. Between a
// module and its loader pass only types of common headers (PacketIo's virtual functions, and plain
// values), and no exceptions. Thread rule: any thread.
#pragma once

#include <string>

#include "transport/base/result.h"
#include "transport/base/return_if_error.h"

namespace pacecar {

// The one symbol of a module, `pacecar_module`.
struct DpdkModule {
  const char* build;  // a digest of all headers that both sides include, and of the compiler
  void (*open)();     // cast to the type that the loader knows
};

// Loads a module (module_path()), and DPDK with it; both stay loaded. Errors: kUnavailable.
Result<const DpdkModule*> load_dpdk_module(const std::string& file);

template <typename Function>
Result<Function*> load_dpdk_function(const std::string& file) {
  ASSIGN_OR_RETURN(const auto module, load_dpdk_module(file));
  return reinterpret_cast<Function*>(module->open);
}

}  // namespace pacecar

// Used in one file of each module.
#define PACECAR_DPDK_MODULE(function)                                                 \
  extern "C" [[gnu::visibility("default")]] const pacecar::DpdkModule pacecar_module; \
  const pacecar::DpdkModule pacecar_module = {PACECAR_DPDK_BUILD,                     \
                                              reinterpret_cast<void (*)()>(&(function))}
