// The devices: their list, opening one, and its attributes.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/log.h"
#include "net_plugin/verbs/objects.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/nic_list.h"
#include "transport/wire/big_endian.h"

namespace pacecar::ibverbs {
namespace {

// Marks our devices: no real one has this function.
ibv_context* mark(ibv_device* /*device*/, int /*command_fd*/) { return nullptr; }

struct Process {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Device>> devices;  // by interface; never removed
};

// Never destroyed: a program may close its devices from a static destructor.
Process& process() {
  static Process* const instance = new Process;
  return *instance;
}

// Named after its interface: "pacecar_eth0".
Device& device_of(const InterfaceInfo& interface) {
  auto& device = process().devices[interface.name];
  if (device == nullptr) {
    device = std::make_unique<Device>();
    device->_ops._dummy1 = mark;
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    const auto name = fmt::format("pacecar_{}", interface.name);
    std::snprintf(device->name, sizeof device->name, "%s", name.c_str());
    std::snprintf(device->dev_name, sizeof device->dev_name, "u%s", name.c_str());
    std::snprintf(device->dev_path, sizeof device->dev_path, "/sys/class/infiniband_verbs/u%s",
                  name.c_str());
    std::snprintf(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/%s",
                  name.c_str());
  }
  device->see(interface);
  return *device;
}

}  // namespace

std::vector<ibv_device*> own_devices() {
  const auto params = load_params_from_environment({}, nullptr);
  if (!params) {
    log_warning(params.error().message);
    return {};
  }
  const auto interfaces = list_interfaces();
  std::vector<NicCandidate> all;
  for (const InterfaceInfo& interface : interfaces) {
    all.push_back({.kind = NicKind::kSoftUdp,
                   .device = interface.name,
                   .usable = interface.up && preferred_address(interface).has_value(),
                   .loopback = interface.loopback});
  }
  const auto chosen = choose_nics(params->nics, all);
  if (!chosen) {
    log_warning(chosen.error().message);
    return {};
  }
  const std::lock_guard lock(process().mutex);
  std::vector<ibv_device*> devices;
  for (const NicGroup& group : *chosen) {
    for (const NicCandidate& nic : group) {
      const auto interface = std::ranges::find(interfaces, nic.device, &InterfaceInfo::name);
      devices.push_back(&device_of(*interface));
    }
  }
  return devices;
}

bool ours(const ibv_device* device) { return device->_ops._dummy1 == mark; }

Result<std::shared_ptr<ProcessNic>> Device::open() {
  const std::lock_guard lock(opening_);
  if (auto open = nic_.lock()) return open;
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  ASSIGN_OR_RETURN(auto opened, ProcessNic::open(interface(), params));
  std::shared_ptr<ProcessNic> shared = std::move(opened);
  nic_ = shared;
  return shared;
}

int error_number(const Error& error) {
  using Row = std::pair<ErrorCode, int>;
  static constexpr Row kNumbers[] = {{ErrorCode::kInvalidArgument, EINVAL},
                                     {ErrorCode::kNotFound, ENODEV},
                                     {ErrorCode::kUnavailable, ENOMEM},
                                     {ErrorCode::kPermission, EACCES}};
  const auto* const found = std::ranges::find(kNumbers, error.code, &Row::first);
  return found == std::end(kNumbers) ? EIO : found->second;
}

}  // namespace pacecar::ibverbs

using namespace pacecar;  // NOLINT: the C interface lies in no namespace
using namespace pacecar::ibverbs;

extern "C" {

#undef ibv_get_device_list

// The real library's list follows the terminating null, for ibv_free_device_list.
PACECAR_VERBS ibv_device** ibv_get_device_list(int* count) {
  return made([&]() -> ibv_device** {
    const auto own = own_devices();
    int real_count = 0;
    ibv_device** const real =
        real_has_devices() ? CALL_REAL(ibv_get_device_list)(&real_count) : nullptr;
    if (real == nullptr) real_count = 0;
    const size_t all = own.size() + static_cast<size_t>(real_count);
    auto** const list = static_cast<ibv_device**>(calloc(all + 2, sizeof(ibv_device*)));
    if (list == nullptr) return nullptr;
    std::copy(own.begin(), own.end(), list);
    std::copy_n(real, real_count, list + own.size());
    list[all + 1] = reinterpret_cast<ibv_device*>(real);
    if (count != nullptr) *count = static_cast<int>(all);
    return list;
  });
}

PACECAR_VERBS void ibv_free_device_list(ibv_device** list) {
  ibv_device** end = list;
  while (*end != nullptr) ++end;
  auto** const real = reinterpret_cast<ibv_device**>(end[1]);
  if (real != nullptr) CALL_REAL(ibv_free_device_list)(real);
  free(list);
}

PACECAR_VERBS const char* ibv_get_device_name(ibv_device* device) { return device->name; }

PACECAR_VERBS int ibv_get_device_index(ibv_device* device) {
  FORWARD_UNLESS_OURS(ibv_get_device_index, device);
  return -1;
}

PACECAR_VERBS __be64 ibv_get_device_guid(ibv_device* device) {
  FORWARD_UNLESS_OURS(ibv_get_device_guid, device);
  __be64 guid = 0;
  wire::store_be64(static_cast<Device*>(device)->interface().guid,
                   reinterpret_cast<uint8_t*>(&guid));
  return guid;
}

PACECAR_VERBS ibv_context* ibv_open_device(ibv_device* device) {
  FORWARD_UNLESS_OURS(ibv_open_device, device);
  return made([&]() -> ibv_context* {
    auto nic = static_cast<Device*>(device)->open();
    if (!nic) {
      log_warning(nic.error().message);
      return no_object(error_number(nic.error()));
    }
    auto context = std::make_unique<Context>();
    context->nic = std::move(*nic);
    context->verbs.sz = sizeof(verbs_context);
    ibv_context* const base = context->base();
    base->device = device;
    base->cmd_fd = -1;
    base->async_fd = context->async.fd();
    base->num_comp_vectors = 1;
    base->abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&base->mutex, nullptr);
    set_calls(context->verbs);
    return context.release()->base();
  });
}

PACECAR_VERBS int ibv_close_device(ibv_context* context) {
  FORWARD_UNLESS_OURS(ibv_close_device, context);
  pthread_mutex_destroy(&context->mutex);
  delete &context_of(context);
  return 0;
}

}  // extern "C"
