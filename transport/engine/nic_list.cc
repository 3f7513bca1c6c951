#include "transport/engine/nic_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace pacecar {
namespace {

constexpr std::string_view kUdpPrefix = "soft:udp:";
constexpr std::string_view kRawPrefix = "soft:raw:";

bool usable(const InterfaceInfo& interface) {
  return interface.up && preferred_address(interface).has_value();
}

std::string names_of(std::span<const InterfaceInfo> interfaces) {
  std::string names;
  for (const InterfaceInfo& interface : interfaces) {
    if (!usable(interface)) continue;
    names += fmt::format("{}soft:udp:{}", names.empty() ? "" : ", ", interface.name);
  }
  return names.empty() ? "none" : names;
}

// The interface's name in an entry without its ^.
Result<std::string_view> name_in(std::string_view entry) {
  const std::string_view prefix = entry.starts_with(kRawPrefix) ? kRawPrefix : kUdpPrefix;
  if (entry.starts_with(prefix)) entry.remove_prefix(prefix.size());
  if (!entry.empty() && entry.find(':') == std::string_view::npos) return entry;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("PACECAR_NICS has the entry '{}', which names no NIC of this version: "
                          "write soft:udp:INTERFACE or soft:raw:INTERFACE",
                          entry));
}

}  // namespace

Result<std::vector<InterfaceInfo>> choose_interfaces(std::string_view list,
                                                     std::span<const InterfaceInfo> interfaces) {
  std::vector<InterfaceInfo> chosen;
  std::vector<std::string_view> excluded;
  bool named = false;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const bool exclude = entry.starts_with('^');
    if (exclude) entry.remove_prefix(1);
    const auto name = name_in(entry);
    if (!name) return tl::unexpected(name.error());
    const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                    [&](const InterfaceInfo& i) { return i.name == *name; });
    if (exclude) {
      excluded.push_back(*name);
      continue;
    }
    named = true;
    if (found == interfaces.end() || !usable(*found)) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("PACECAR_NICS names '{}', but there is no such interface that is up "
                              "and has an address: choose from {}",
                              entry, names_of(interfaces)));
    }
    const auto same = [&](const InterfaceInfo& i) { return i.name == *name; };
    if (std::none_of(chosen.begin(), chosen.end(), same)) {
      chosen.push_back(*found);
      chosen.back().raw = entry.starts_with(kRawPrefix);
    }
  }
  if (!named)
    std::copy_if(interfaces.begin(), interfaces.end(), std::back_inserter(chosen), usable);
  std::erase_if(chosen, [&](const InterfaceInfo& interface) {
    return std::find(excluded.begin(), excluded.end(), interface.name) != excluded.end();
  });
  const auto real = [](const InterfaceInfo& interface) { return !interface.loopback; };
  if (!named && std::any_of(chosen.begin(), chosen.end(), real)) {
    std::erase_if(chosen, [](const InterfaceInfo& interface) { return interface.loopback; });
  }
  if (chosen.empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("PACECAR_NICS leaves no NIC: choose from {}", names_of(interfaces)));
  }
  return chosen;
}

}  // namespace pacecar
