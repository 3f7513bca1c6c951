// Whether the kernel lets NICs register GPU memory by its address: NVIDIA's module for that, under
// either of its names.
//
// Thread rule: any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace pacecar {

// The module's name; nullopt when it is not loaded. `root` is "/" but for tests.
std::optional<std::string> peer_memory_module(const std::filesystem::path& root = "/");

}  // namespace pacecar
