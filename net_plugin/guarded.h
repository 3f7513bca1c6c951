// Catches all exceptions between NCCL's calls and our code: none may reach NCCL.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "net_plugin/log.h"

namespace pacecar::plugin {

// A call that NCCL's rules do not allow.
inline nccl::NcclResult misuse(std::string_view sentence) {
  log(LogLevel::kError, sentence);
  return nccl::NcclResult::kInternalError;
}

template <typename Body>
nccl::NcclResult guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    log(LogLevel::kError, "out of memory: free some, or start fewer ranks on this host");
    return nccl::NcclResult::kSystemError;
  } catch (const std::exception& error) {
    return misuse(error.what());
  } catch (...) {
    return misuse("an unknown exception was thrown inside the plugin");
  }
}

// Deletes an object that NCCL holds.
template <typename Object>
nccl::NcclResult destroy(void* object) noexcept {
  return guarded([&] {
    delete static_cast<Object*>(object);
    return nccl::NcclResult::kSuccess;
  });
}

}  // namespace pacecar::plugin
