// The devices: their list, opening one, and its attributes.
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>

#include "net_plugin/verbs/objects.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/open/nic_list.h"
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
  device->set_interface(interface);
  return *device;
}

constexpr int kPort = 1;
constexpr uint32_t kNoVendor = 0xFF'FFFF;  // as other software devices
constexpr uint16_t kDefaultPartition = 0xFFFF;
constexpr uint8_t kLinkUp = 5;

// Sets the active width and speed whose product is nearest to the rate, as tools multiply them.
void set_speed(Rate rate, ibv_port_attr* attr) {
  static constexpr std::pair<uint8_t, double> kSpeeds[] = {{1, 2.5}, {2, 5},   {4, 10},
                                                           {16, 14}, {32, 25}, {64, 50}};
  static constexpr std::pair<uint8_t, int> kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}};
  const double wanted = rate.real_bps() / 1e9;
  double best = 1e18;
  for (const auto& [width, lanes] : kWidths) {
    for (const auto& [speed, gbps] : kSpeeds) {
      const double distance = std::abs(gbps * lanes - wanted);
      if (distance >= best) continue;
      best = distance;
      attr->active_width = width;
      attr->active_speed = speed;
    }
  }
}

void describe_device(Context& context, ibv_device_attr* attr) {
  const NicCaps& caps = context.nic->caps();
  *attr = ibv_device_attr{};
  std::snprintf(attr->fw_ver, sizeof attr->fw_ver, "pacecar");
  attr->node_guid = attr->sys_image_guid = ibv_get_device_guid(context.base()->device);
  attr->max_mr_size = uint64_t{1} << 62;
  attr->page_size_cap = 0xFFFF'F000;
  attr->vendor_id = kNoVendor;
  attr->max_qp = static_cast<int>(caps.queue_pairs);
  attr->max_qp_wr = kMaxWorkRequests;
  attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                           IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_N_NOTIFY_CQ |
                           IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr->max_sge = attr->max_sge_rd = kMaxSge;
  attr->max_cq = 1 << 16;
  attr->max_cqe = kMaxCqe;
  attr->max_mr = attr->max_mw = static_cast<int>(caps.regions);
  attr->max_pd = 1 << 16;
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = kMaxReads;
  attr->max_res_rd_atom = static_cast<int>(caps.queue_pairs) * kMaxReads;
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->max_ah = 1 << 20;
  attr->max_srq = 1024;
  attr->max_srq_wr = kMaxWorkRequests;
  attr->max_srq_sge = kMaxSge;
  attr->max_pkeys = 1;
  attr->local_ca_ack_delay = 15;
  attr->phys_port_cnt = 1;
}

// `mtu` is one of the path MTUs, powers of two from 256 to 4096.
ibv_mtu mtu_code(Bytes mtu) { return static_cast<ibv_mtu>(std::bit_width(mtu) - 8); }

void describe_port(Context& context, ibv_port_attr* attr) {
  const NicCaps& caps = context.nic->caps();
  *attr = ibv_port_attr{};
  attr->state = context.device().interface().up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = mtu_code(caps.mtu);
  attr->gid_tbl_len = kGids;
  attr->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr->max_msg_sz = kMaxMessage;
  attr->pkey_tbl_len = 1;
  attr->max_vl_num = 1;
  attr->phys_state = kLinkUp;
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  attr->flags = 1;  // a GRH is required
  set_speed(caps.line_rate, attr);
}

// Programs of another libibverbs version have longer or shorter structures: unknown fields are 0.
template <typename Known>
void fill(void* to, size_t size, const Known& known) {
  const size_t common = std::min(size, sizeof known);
  std::memcpy(to, &known, common);
  std::memset(static_cast<uint8_t*>(to) + common, 0, size - common);
}

int query_port_extended(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) {
  if (port != kPort) return EINVAL;
  ibv_port_attr whole;
  describe_port(context_of(context), &whole);
  fill(attr, size, whole);
  return 0;
}

int query_device_extended(ibv_context* context, const ibv_query_device_ex_input* /*input*/,
                          ibv_device_attr_ex* attr, size_t size) {
  ibv_device_attr_ex whole{};
  describe_device(context_of(context), &whole.orig_attr);
  whole.completion_timestamp_mask = ~uint64_t{0};
  whole.hca_core_clock = 1'000'000;  // kHz: completion times are nanoseconds
  whole.cq_mod_caps = {.max_cq_count = 0xFFFF, .max_cq_period = 0xFFFF};
  whole.phys_port_cnt_ex = 1;
  fill(attr, size, whole);
  return 0;
}

int query_values(ibv_context* /*context*/, ibv_values_ex* values) {
  const uint32_t wanted = values->comp_mask;
  values->comp_mask = 0;
  if ((wanted & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
    values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  }
  return 0;
}

}  // namespace

std::vector<ibv_device*> own_devices() {
  const auto params = load_params_from_environment({}, nullptr);
  if (!params) {
    log_sink()(LogLevel::kWarn, params.error().message);
    return {};
  }
  const auto interfaces = list_interfaces();
  if (!interfaces) {
    log_sink()(LogLevel::kWarn, interfaces.error().message);
    return {};
  }
  auto all = soft_candidates(*interfaces);
  std::error_code no_such_folder;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/class/infiniband", no_such_folder)) {
    all.push_back({.kind = NicKind::kVerbs, .device = entry.path().filename(), .secluded = true});
  }
  const auto chosen = choose_nics(params->nics, all);
  if (!chosen) {
    log_sink()(LogLevel::kWarn, chosen.error().message);
    return {};
  }
  const std::lock_guard lock(process().mutex);
  std::vector<ibv_device*> devices;
  for (const NicGroup& group : *chosen) {
    for (const NicCandidate& nic : group) {
      if (nic.kind != NicKind::kSoftUdp) continue;  // the others are for NCCL
      const auto interface = std::ranges::find(*interfaces, nic.device, &InterfaceInfo::name);
      devices.push_back(&device_of(*interface));
    }
  }
  return devices;
}

bool ours(const ibv_device* device) { return device->_ops._dummy1 == mark; }

Result<std::shared_ptr<ProcessNic>> Device::open() {
  const std::lock_guard lock(opening_);
  if (auto open = nic_.lock(); open && !open->inherited()) return open;
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  ASSIGN_OR_RETURN(auto opened, ProcessNic::open(interface(), params));
  std::shared_ptr<ProcessNic> shared = std::move(opened);
  nic_ = shared;
  return shared;
}

int refused(std::string_view why) {
  log_sink()(LogLevel::kWarn, why);
  return EINVAL;
}

int error_in_child(std::string_view call) {
  for (const auto* const releasing : {"ibv_destroy_", "ibv_dealloc_", "ibv_dereg_", "ibv_close_"}) {
    if (call.starts_with(releasing)) return 0;
  }
  static const int error = [] {
    log_sink()(LogLevel::kWarn,
               "a forked process cannot use the devices of its parent: open one after fork()");
    return EPERM;
  }();
  return error;
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

#undef ibv_query_port

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
  return ours(device) ? -1 : CALL_REAL(ibv_get_device_index)(device);
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
      log_sink()(LogLevel::kWarn, nic.error().message);
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
    verbs_context& calls = context->verbs;
    calls.query_port = query_port_extended;
    calls.query_device_ex = query_device_extended;
    calls.query_rt_values = query_values;
    set_completion_calls(calls);
    set_window_calls(calls);
    set_queue_pair_calls(calls);
    set_receive_calls(calls);
    return context.release()->base();
  });
}

PACECAR_VERBS int ibv_close_device(ibv_context* context) {
  FORWARD_UNLESS_OURS(ibv_close_device, context);
  pthread_mutex_destroy(&context->mutex);
  delete &context_of(context);
  return 0;
}

PACECAR_VERBS int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_query_device, context, attr);
  describe_device(context_of(context), attr);
  return 0;
}

// Older programs have a shorter structure, without the link layer.
PACECAR_VERBS int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_query_port, context, port, attr);
  return query_port_extended(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                             offsetof(ibv_port_attr, port_cap_flags2));
}

PACECAR_VERBS int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  FORWARD_UNLESS_OURS(ibv_query_gid, context, port, index, gid);
  if (port != kPort || index < 0 || index >= kGids) return failed(EINVAL);
  std::ranges::copy(nic_of(context).address().ip, gid->raw);
  return 0;
}

// Used between libibverbs and its tools; verbs.h does not declare it.
enum ibv_gid_type_sysfs { IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2 };
PACECAR_VERBS int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                     ibv_gid_type_sysfs* type) {
  FORWARD_UNLESS_OURS(ibv_query_gid_type, context, port, index, type);
  if (port != kPort || index >= kGids) return failed(EINVAL);
  *type = IBV_GID_TYPE_SYSFS_ROCE_V2;
  return 0;
}

PACECAR_VERBS int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                    ibv_gid_entry* entry, uint32_t flags, size_t size) {
  FORWARD_UNLESS_OURS(_ibv_query_gid_ex, context, port, index, entry, flags, size);
  if (port != kPort || flags != 0) return EINVAL;
  if (index >= kGids) return ENODATA;
  ibv_gid_entry whole{};
  std::ranges::copy(nic_of(context).address().ip, whole.gid.raw);
  whole.port_num = port;
  whole.gid_type = IBV_GID_TYPE_ROCE_V2;
  whole.ndev_ifindex = if_nametoindex(context_of(context).device().interface().name.c_str());
  fill(entry, size, whole);
  return 0;
}

PACECAR_VERBS ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                           size_t most, uint32_t flags, size_t size) {
  FORWARD_UNLESS_OURS(_ibv_query_gid_table, context, entries, most, flags, size);
  if (most == 0) return -EINVAL;
  const int failed = _ibv_query_gid_ex(context, kPort, 0, entries, flags, size);
  return failed != 0 ? -failed : 1;
}

PACECAR_VERBS int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  FORWARD_UNLESS_OURS(ibv_query_pkey, context, port, index, pkey);
  if (port != kPort || index != 0) return failed(EINVAL);
  *pkey = kDefaultPartition;  // the same in either byte order
  return 0;
}

PACECAR_VERBS int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  FORWARD_UNLESS_OURS(ibv_get_pkey_index, context, port, pkey);
  return port == kPort && pkey == kDefaultPartition ? 0 : -1;
}

}  // extern "C"
}  // namespace pacecar::ibverbs
