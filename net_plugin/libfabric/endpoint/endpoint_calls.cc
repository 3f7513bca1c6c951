// The calls on an endpoint itself: open, close, bind, enable, options and names.
#include <cstring>

#include "net_plugin/libfabric/endpoint/endpoint.h"

namespace pacecar::fabric {
namespace {

Endpoint& of(fid* object) { return *static_cast<Endpoint*>(reinterpret_cast<fid_ep*>(object)); }

// The call of libfabric that is this member function.
template <auto kMember, typename... Arguments>
auto guarded_call(fid* object, Arguments... arguments) {
  return guarded([&] { return (of(object).*kMember)(arguments...); });
}

int close_endpoint(fid* object) {
  Domain& domain = of(object).domain();
  of(object).flush();
  {
    const std::lock_guard lock(domain.mutex);
    delete &of(object);
  }
  --domain.users;
  return 0;
}

int control_endpoint(fid* object, int command, void* argument) {
  Endpoint& endpoint = of(object);
  switch (command) {
    case FI_ENABLE: return endpoint.enable();
    case FI_GETOPSFLAG: {
      auto* const flags = static_cast<uint64_t*>(argument);
      *flags = (*flags & FI_RECV) != 0 ? endpoint.rx_flags() : endpoint.tx_flags();
      return 0;
    }
    default: return -FI_ENOSYS;
  }
}

int get_option(fid_t object, int level, int name, void* value, size_t* bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (*bytes < sizeof(size_t)) return -FI_ETOOSMALL;
  std::memcpy(value, &of(object).min_multi_receive(), sizeof(size_t));
  *bytes = sizeof(size_t);
  return 0;
}

int set_option(fid_t object, int level, int name, const void* value, size_t bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (bytes != sizeof(size_t)) return -FI_EINVAL;
  std::memcpy(&of(object).min_multi_receive(), value, sizeof(size_t));
  return 0;
}

fi_ops kEndpointObject =
    object_calls(safe<close_endpoint>, safe<control_endpoint>, guarded_call<&Endpoint::bind>);
fi_ops_ep kEndpoint = {.size = sizeof(fi_ops_ep),
                       .cancel = guarded_call<&Endpoint::cancel>,
                       .getopt = get_option,
                       .setopt = set_option,
                       .tx_ctx = unsupported,
                       .rx_ctx = unsupported,
                       .rx_size_left = unsupported,
                       .tx_size_left = unsupported};
fi_ops_cm kNames = {.size = sizeof(fi_ops_cm),
                    .setname = guarded_call<&Endpoint::set_name>,
                    .getname = guarded_call<&Endpoint::get_name>,
                    .getpeer = unsupported,
                    .connect = unsupported,
                    .listen = unsupported,
                    .accept = unsupported,
                    .reject = unsupported,
                    .shutdown = unsupported,
                    .join = unsupported};

}  // namespace

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  const bool rdm = info->ep_attr == nullptr || info->ep_attr->type == FI_EP_RDM ||
                   info->ep_attr->type == FI_EP_UNSPEC;
  if (!rdm || info->tx_attr == nullptr || info->rx_attr == nullptr) return -FI_EINVAL;
  auto& its_domain = *static_cast<Domain*>(domain);
  auto* const made = new Endpoint(its_domain, *info);
  ++its_domain.users;
  made->cm = &kNames;
  made->msg = &message_calls;
  made->rma = &rma_calls;
  made->tagged = &tagged_calls;
  made->atomic = &atomic_calls;
  return hand_out(made, FI_CLASS_EP, &kEndpointObject, &kEndpoint, context, endpoint);
}

}  // namespace pacecar::fabric
