#include "gdr/peermem.h"

namespace pacecar {

std::optional<std::string> peer_memory_module(const std::filesystem::path& root) {
  std::error_code ignored;
  for (const char* name : {"nvidia_peermem", "nv_peer_mem"}) {
    if (std::filesystem::exists(root / "sys/module" / name, ignored)) return name;
  }
  return std::nullopt;
}

}  // namespace pacecar
