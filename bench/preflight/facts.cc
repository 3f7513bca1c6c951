#include "bench/preflight/facts.h"

#include <algorithm>

namespace pacecar::preflight {
namespace {

template <typename T>
const T* pointer_to(const std::vector<T>& items, std::string_view key, std::string T::*member) {
  const auto found = std::ranges::find(items, key, member);
  return found == items.end() ? nullptr : &*found;
}

}  // namespace

bool Software::has_module(std::string_view name) const {
  return std::ranges::find(modules, name) != modules.end();
}

const Netdev* Facts::netdev(std::string_view name) const {
  return pointer_to(netdevs, name, &Netdev::name);
}

const PciDevice* Facts::pci_device(std::string_view address) const {
  return pointer_to(pci, address, &PciDevice::address);
}

}  // namespace pacecar::preflight
