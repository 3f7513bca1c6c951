// Starts a thread; if the system allows no more, the exception names it and the cure. Any thread.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <utility>

namespace pacecar {

// A std::thread or std::jthread. `purpose` completes "no thread can be made that". Errors:
// std::system_error.
template <typename Thread, typename Work>
Thread start_thread(std::string_view purpose, Work&& work) {
  try {
    return Thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    throw std::system_error(
        error.code(),
        fmt::format("no thread can be made that {}: raise the limits of processes (ulimit -u, and "
                    "pids.max of the container)",
                    purpose));
  }
}

}  // namespace pacecar
