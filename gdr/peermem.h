// The kernel module of NVIDIA with which NICs register GPU memory by its address.
//
// Thread rule: any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace pacecar {

// The name of the loaded module, which has two; nullopt: not loaded. `root` is "/" except in tests.
std::optional<std::string> peer_memory_module(const std::filesystem::path& root = "/");

}  // namespace pacecar
