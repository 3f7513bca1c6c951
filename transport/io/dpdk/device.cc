#include "transport/io/dpdk/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "transport/base/return_if_error.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"
#include "transport/io/dpdk/drivers/driver.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr Bytes kMinMtu = 576;
constexpr Bytes kMaxMtu = 9600;
constexpr uint16_t kMaxVlan = 4094;

tl::unexpected<Error> refuse(std::string_view device, std::string_view argument,
                             std::string_view cure) {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("the DPDK device '{}' has the argument '{}': {}", device, argument, cure));
}

template <typename T>
std::optional<T> number_in(std::string_view text, T least, T most) {
  const auto value = to_number<T>(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

std::optional<Address> numeric_address(std::string_view text) {
  const bool ipv6 = text.find(':') != std::string_view::npos;
  const auto address = parse_address(fmt::format(fmt::runtime(ipv6 ? "[{}]:0" : "{}:0"), text));
  return address && address->scope_id == 0 ? std::optional(*address) : std::nullopt;
}

// False: the argument is for the driver.
Result<bool> take_own(DpdkDevice& device, std::string_view argument) {
  std::string_view value = argument;
  const std::string_view key = take_until(value, '=');
  if (key == "address") {
    std::string_view bits = value;
    device.address = numeric_address(take_until(bits, '/'));
    const uint8_t most = device.address && is_ipv4(*device.address) ? 32 : 128;
    if (!bits.empty()) device.link_bits = number_in<uint8_t>(bits, 1, most);
    const bool slash = value.find('/') != std::string_view::npos;
    if (!device.address || slash != device.link_bits.has_value()) {
      return refuse(
          device.name, argument,
          "write address=192.0.2.1, address=2001:db8::1, or with the length of the link's "
          "prefix address=192.0.2.1/24");
    }
  } else if (key == "gateway") {
    device.gateway = numeric_address(value);
    if (!device.gateway) {
      return refuse(device.name, argument, "write gateway=192.0.2.254 or gateway=2001:db8::ff");
    }
  } else if (key == "vlan") {
    device.vlan = number_in<uint16_t>(value, 1, kMaxVlan);
    if (!device.vlan) return refuse(device.name, argument, "a VLAN is a number from 1 to 4094");
  } else if (key == "mtu") {
    device.mtu = number_in<Bytes>(value, kMinMtu, kMaxMtu);
    if (!device.mtu) {
      return refuse(device.name, argument,
                    fmt::format("an MTU is a number from {} to {}", kMinMtu, kMaxMtu));
    }
  } else if (key == "bootstrap") {
    device.bootstrap = value;
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool DpdkDevice::is_pci() const { return name.find(':') != std::string::npos; }

bool DpdkDevice::names_on_link(const Address& own, const Address& to) const {
  if (!link_bits) return own.ip == to.ip;
  const size_t family_bits = is_ipv4(own) ? 8 * kIpv4Prefix.size() : 0;
  const auto [ours, theirs] = std::ranges::mismatch(own.ip, to.ip);
  auto common_bits = static_cast<size_t>(8 * (ours - own.ip.begin()));
  if (ours != own.ip.end()) {
    common_bits += static_cast<size_t>(std::countl_zero(static_cast<uint8_t>(*ours ^ *theirs)));
  }
  return common_bits >= family_bits + *link_bits;
}

Address DpdkDevice::next_hop(const Address& own, const Address& to) const {
  const bool on_link = !gateway || is_link_local(to) || names_on_link(own, to);
  return on_link ? to : *gateway;
}

std::string_view DpdkDevice::driver() const {
  const size_t end = name.find_last_not_of("0123456789");
  return std::string_view(name).substr(0, end == std::string::npos ? 0 : end + 1);
}

std::optional<std::string_view> DpdkDevice::argument(std::string_view key) const {
  std::string_view rest = arguments;
  while (!rest.empty()) {
    std::string_view value = take_until(rest, ',');
    if (take_until(value, '=') == key) return value;
  }
  return std::nullopt;
}

Result<DpdkDevice> parse_dpdk_device(std::string_view name, std::string_view arguments) {
  DpdkDevice device{.name = std::string(name), .arguments = {}, .bootstrap = {}};
  if (name.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "a DPDK device needs a name: write soft:dpdk:0000:3b:00.0 or soft:dpdk:net_vhost0");
  }
  while (!arguments.empty()) {
    const std::string_view argument = take_until(arguments, ',');
    ASSIGN_OR_RETURN(const auto ours, take_own(device, argument));
    if (ours) continue;
    if (!device.arguments.empty()) device.arguments += ',';
    device.arguments += argument;
  }
  return device;
}

std::string with_defaults(const DpdkDevice& device) {
  std::string text = device.name;
  if (!device.arguments.empty()) text += "," + device.arguments;
  const std::string_view defaults = dpdk_driver(device.driver()).defaults;
  if (!defaults.empty() && !device.argument(defaults.substr(0, defaults.find('=')))) {
    text += "," + std::string(defaults);
  }
  return text;
}

}  // namespace pacecar
