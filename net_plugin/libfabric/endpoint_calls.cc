// Calls that open, bind, enable, query and close endpoints.
#include <cstring>

#include "net_plugin/libfabric/calls.h"

namespace pacecar::fabric {
namespace {

Endpoint& of(fid* object) { return endpoint_of(reinterpret_cast<fid_ep*>(object)); }

int close_endpoint(fid* object) {
  return guarded([&] {
    of(object).flush();
    delete &of(object);
    return 0;
  });
}

int bind_endpoint(fid* object, fid* other, uint64_t flags) {
  return guarded([&] { return of(object).bind(other, flags); });
}

int control_endpoint(fid* object, int command, void* argument) {
  return guarded([&]() -> int {
    Endpoint& endpoint = of(object);
    switch (command) {
      case FI_ENABLE:
        return endpoint.enable();
      case FI_GETOPSFLAG: {
        auto* const flags = static_cast<uint64_t*>(argument);
        *flags = (*flags & FI_RECV) != 0 ? endpoint.rx_flags() : endpoint.tx_flags();
        return 0;
      }
      default:
        return -FI_ENOSYS;
    }
  });
}

ssize_t cancel(fid_t object, void* context) {
  return guarded([&] { return of(object).cancel(context); });
}

int get_option(fid_t object, int level, int name, void* value, size_t* bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (*bytes < sizeof(size_t)) return -FI_ETOOSMALL;
  std::memcpy(value, &of(object).min_multi_receive, sizeof(size_t));
  *bytes = sizeof(size_t);
  return 0;
}

int set_option(fid_t object, int level, int name, const void* value, size_t bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (bytes != sizeof(size_t)) return -FI_EINVAL;
  std::memcpy(&of(object).min_multi_receive, value, sizeof(size_t));
  return 0;
}

int set_name(fid_t object, void* address, size_t bytes) {
  return guarded([&] { return of(object).set_name(address, bytes); });
}

int get_name(fid_t object, void* address, size_t* bytes) {
  return guarded([&] { return of(object).get_name(address, bytes); });
}

fi_ops kEndpointObject = object_calls(close_endpoint, control_endpoint, bind_endpoint);
fi_ops_ep kEndpoint = {.size = sizeof(fi_ops_ep),
                       .cancel = cancel,
                       .getopt = get_option,
                       .setopt = set_option,
                       .tx_ctx = unsupported,
                       .rx_ctx = unsupported,
                       .rx_size_left = unsupported,
                       .tx_size_left = unsupported};
fi_ops_cm kNames = {.size = sizeof(fi_ops_cm),
                    .setname = set_name,
                    .getname = get_name,
                    .getpeer = unsupported,
                    .connect = unsupported,
                    .listen = unsupported,
                    .accept = unsupported,
                    .reject = unsupported,
                    .shutdown = unsupported,
                    .join = unsupported};

}  // namespace

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  return guarded([&]() -> int {
    const bool rdm = info->ep_attr == nullptr || info->ep_attr->type == FI_EP_RDM ||
                     info->ep_attr->type == FI_EP_UNSPEC;
    if (!rdm || info->tx_attr == nullptr || info->rx_attr == nullptr) return -FI_EINVAL;
    auto* const made = new Endpoint(*static_cast<Domain*>(domain), *info);
    made->cm = &kNames;
    made->msg = &message_calls;
    made->rma = &rma_calls;
    made->tagged = &tagged_calls;
    made->atomic = &atomic_calls;
    return hand_out(made, FI_CLASS_EP, &kEndpointObject, &kEndpoint, context, endpoint);
  });
}

}  // namespace pacecar::fabric
