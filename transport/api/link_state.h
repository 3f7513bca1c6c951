// Whether a network interface has a link.
#pragma once

#include <optional>
#include <string>

namespace pacecar {

// nullopt: it is no network interface of this process's network namespace (mlx5_0, a DPDK port).
std::optional<bool> link_is_up(const std::string& interface);

}  // namespace pacecar
