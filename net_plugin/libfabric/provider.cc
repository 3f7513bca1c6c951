// The provider's entry point, its fabric, logging and error numbers.
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net_plugin/libfabric/info.h"
#include "net_plugin/libfabric/objects.h"

namespace pacecar::fabric {
namespace {

fi_ops kFabricObject = object_calls(close_object<Fabric>);
fi_ops_fabric kFabric = {.size = sizeof(fi_ops_fabric),
                         .domain = safe<open_domain>,
                         .passive_ep = unsupported,
                         .eq_open = safe<open_event_queue>,
                         .wait_open = unsupported,
                         .trywait = safe<try_wait>};

int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  if (attr->name != nullptr && std::strcmp(attr->name, kProviderName) != 0) return -FI_ENODATA;
  auto* const made = new Fabric;
  made->api_version = attr->api_version;
  return hand_out(made, FI_CLASS_FABRIC, &kFabricObject, &kFabric, context, fabric);
}

fi_provider provider_of_process = {.version = FI_VERSION(0, 1),
                                   .fi_version = FI_VERSION(1, 17),
                                   .context = {},
                                   .name = kProviderName,
                                   .getinfo = safe<get_info>,
                                   .fabric = safe<open_fabric>,
                                   .cleanup = [] {}};

}  // namespace

void log_line(LogLevel level, std::string_view line) {
  fi_log_level as = FI_LOG_WARN;
  if (level == LogLevel::kInfo) as = FI_LOG_INFO;
  if (level == LogLevel::kTrace) as = FI_LOG_DEBUG;
  if (fi_log_enabled(&provider_of_process, as, FI_LOG_CORE) == 0) return;
  fi_log(&provider_of_process, as, FI_LOG_CORE, kProviderName, 0, "%.*s\n",
         static_cast<int>(line.size()), line.data());
}

void log_warning(const std::string& line) { log_line(LogLevel::kWarn, line); }

int failed(const Error& error) {
  log_warning(error.message);
  return -fi_error(error.code);
}

int fi_error(ErrorCode code) {
  using Row = std::pair<ErrorCode, int>;
  static constexpr Row kNumbers[] = {
      {ErrorCode::kInvalidArgument, FI_EINVAL}, {ErrorCode::kNotFound, FI_ENODEV},
      {ErrorCode::kUnavailable, FI_ENOMEM},     {ErrorCode::kPermission, FI_EACCES},
      {ErrorCode::kPeer, FI_ECONNRESET},        {ErrorCode::kStale, FI_ECONNRESET}};
  const auto* const found = std::ranges::find(kNumbers, code, &Row::first);
  return found == std::end(kNumbers) ? FI_EIO : found->second;
}

}  // namespace pacecar::fabric

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  return &pacecar::fabric::provider_of_process;
}
