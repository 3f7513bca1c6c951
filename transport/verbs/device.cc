#include "transport/verbs/device.h"

#include <endian.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/library.h"

namespace pacecar {
namespace {

using DeviceList = VerbsHandle<ibv_device*, ibv_free_device_list>;

struct Devices {
  DeviceList list;
  std::span<ibv_device*> all;  // of the list
};

Result<Devices> list_devices() {
  int count = 0;
  DeviceList list(ibv_get_device_list(&count));
  // A kernel without RDMA returns no list; this counts as a list of no devices.
  if (list == nullptr && errno != ENOSYS && errno != ENODEV) {
    return verbs_failed("ibv_get_device_list", errno, "RDMA devices");
  }
  const std::span all(list.get(), list == nullptr ? 0 : static_cast<size_t>(count));
  return Devices{std::move(list), all};
}

GidKind kind_of(uint32_t gid_type) {
  return gid_type == IBV_GID_TYPE_ROCE_V1   ? GidKind::kRoceV1
         : gid_type == IBV_GID_TYPE_ROCE_V2 ? GidKind::kRoceV2
                                            : GidKind::kInfiniband;
}

struct GidTable {
  std::vector<GidEntry> entries;
  std::string netdev;  // of the first entry that has one
  int error = 0;       // an errno: it cannot be read
};

GidTable read_gids(ibv_context* context, uint32_t port) {
  constexpr size_t kMost = 1024;
  std::vector<ibv_gid_entry> raw(kMost);
  const ssize_t count = ibv_query_gid_table(context, raw.data(), raw.size(), 0);
  GidTable table{.error = count < 0 ? static_cast<int>(-count) : 0};
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = raw[static_cast<size_t>(i)];
    if (entry.port_num != port) continue;
    GidEntry& mine = table.entries.emplace_back(
        GidEntry{.index = entry.gid_index, .kind = kind_of(entry.gid_type)});
    std::copy_n(entry.gid.raw, mine.gid.size(), mine.gid.begin());
    std::array<char, IF_NAMESIZE> name{};
    if (table.netdev.empty() && entry.ndev_ifindex != 0 &&
        if_indextoname(entry.ndev_ifindex, name.data()) != nullptr) {
      table.netdev = name.data();
    }
  }
  return table;
}

// Empty for a software device.
std::string pci_path_of(const ibv_device* device) {
  std::error_code missing;
  const std::filesystem::path bus = std::filesystem::path(device->ibdev_path) / "device";
  const auto path = std::filesystem::canonical(bus, missing);
  return missing ? std::string() : path.string();
}

VerbsPortInfo describe(ibv_device* device, ibv_context* context, const ibv_port_attr& attributes,
                       uint32_t port) {
  return {.device = ibv_get_device_name(device),
          .port = port,
          .netdev = read_gids(context, port).netdev,
          .pci_path = pci_path_of(device),
          .guid = be64toh(ibv_get_device_guid(device)),
          .rate = port_rate(attributes),
          .active = attributes.state == IBV_PORT_ACTIVE};
}

Result<void> choose_address(VerbsDevice& device, std::optional<uint32_t> gid_index,
                            const LogSink& log) {
  const GidTable table = read_gids(device.context.get(), device.port);
  if (table.error != 0) return verbs_failed("ibv_query_gid_table", table.error, device.name);
  const auto choice = choose_gid(device.link_layer, table.entries, gid_index);
  if (!choice) {
    return fail(choice.error().code,
                fmt::format("{} port {}: {}", device.name, device.port, choice.error().message));
  }
  device.gid = choice->entry;
  if (!choice->warning.empty()) {
    log(LogLevel::kWarn, fmt::format("{}: {}", device.name, choice->warning));
  }
  return {};
}

// XDR and faster speeds have a field of their own, in newer versions of the library.
template <typename Port>
uint32_t active_speed(const Port& port) {
  if constexpr (requires { port.active_speed_ex; }) {
    if (port.active_speed_ex != 0) return port.active_speed_ex;
  }
  return port.active_speed;
}

}  // namespace

Result<std::vector<VerbsPortInfo>> list_verbs_ports() {
  RETURN_IF_ERROR(load_verbs_library());
  ASSIGN_OR_RETURN(const auto devices, list_devices());
  std::vector<VerbsPortInfo> ports;
  for (ibv_device* device : devices.all) {
    const ContextHandle context(ibv_open_device(device));
    ibv_device_attr attributes{};
    if (context == nullptr || ibv_query_device(context.get(), &attributes) != 0) continue;
    for (uint32_t port = 1; port <= attributes.phys_port_cnt; ++port) {
      ibv_port_attr attr{};
      if (ibv_query_port(context.get(), static_cast<uint8_t>(port), &attr) != 0) continue;
      ports.push_back(describe(device, context.get(), attr, port));
    }
  }
  return ports;
}

Rate port_rate(const ibv_port_attr& port) {
  struct Code {
    uint32_t code;
    uint64_t mbps;  // of one lane, payload without 8b/10b or 64b/66b coding
  };
  constexpr auto kSpeeds = std::to_array<Code>({{1, 2'000},
                                                {2, 4'000},
                                                {4, 8'000},
                                                {8, 10'000},
                                                {16, 13'636},
                                                {32, 25'000},
                                                {64, 50'000},
                                                {128, 100'000},
                                                {256, 200'000}});
  constexpr auto kWidths = std::to_array<Code>({{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}});
  const auto speed = std::ranges::find(kSpeeds, active_speed(port), &Code::code);
  const auto width = std::ranges::find(kWidths, port.active_width, &Code::code);
  if (speed == kSpeeds.end() || width == kWidths.end()) return {};
  return Rate::from_bps(speed->mbps * width->mbps * 1'000'000);
}

Result<VerbsDevice> VerbsDevice::open(const std::string& name, uint32_t port,
                                      std::optional<uint32_t> gid_index, const LogSink& log) {
  RETURN_IF_ERROR(load_verbs_library());
  // Before Linux 5.12 a fork would separate pages from the device. The call does nothing if the
  // application has made it already, or if the kernel copies the pages at fork.
  if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) ibv_fork_init();
  ASSIGN_OR_RETURN(const auto devices, list_devices());
  const auto found = std::ranges::find(devices.all, name, ibv_get_device_name);
  if (found == devices.all.end()) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format("there is no RDMA device {}: `ibv_devices` lists those that are there", name));
  }
  VerbsDevice device{.context = ContextHandle(ibv_open_device(*found)),
                     .name = name,
                     .port = port,
                     .hardware = !pci_path_of(*found).empty()};
  if (device.context == nullptr) return verbs_failed("ibv_open_device", errno, name);
  const int device_error = ibv_query_device(device.context.get(), &device.attributes);
  if (device_error != 0) return verbs_failed("ibv_query_device", device_error, name);
  if (ibv_query_device_ex(device.context.get(), nullptr, &device.extended) != 0) {
    device.extended = {};
  }
  if (port == 0 || port > device.attributes.phys_port_cnt) {
    return fail(ErrorCode::kNotFound, fmt::format("{} has no port {}: its ports are 1 to {}", name,
                                                  port, device.attributes.phys_port_cnt));
  }
  const int port_error =
      ibv_query_port(device.context.get(), static_cast<uint8_t>(port), &device.port_attributes);
  if (port_error != 0) return verbs_failed("ibv_query_port", port_error, name);
  if (device.port_attributes.state != IBV_PORT_ACTIVE) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("port {} of {} is not active (it is {}): check cable, switch and, for "
                            "InfiniBand, the subnet manager",
                            port, name, ibv_port_state_str(device.port_attributes.state)));
  }
  const bool ethernet = device.port_attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  device.link_layer = ethernet ? LinkLayer::kEthernet : LinkLayer::kInfiniband;
  device.mtu = 128U << device.port_attributes.active_mtu;
  RETURN_IF_ERROR(choose_address(device, gid_index, log));
  return device;
}

bool VerbsDevice::port_active() const {
  ibv_port_attr now{};
  return ibv_query_port(context.get(), static_cast<uint8_t>(port), &now) == 0 &&
         now.state == IBV_PORT_ACTIVE;
}

}  // namespace pacecar
