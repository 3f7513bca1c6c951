
#include "net_plugin/libfabric/info.h"
#include "net_plugin/libfabric/objects.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

AddressVector& of(fid_av* vector) { return *static_cast<AddressVector*>(vector); }

// Inserts the addresses that next(i) returns; nullopt: an invalid address. Reports as fi_av_insert:
// an error per address with FI_SYNC_ERR, events where an event queue is bound.
template <typename Next>
int insert_all(AddressVector& vector, size_t count, fi_addr_t* numbers, uint64_t flags,
               void* context, Next next) {
  int inserted = 0;
  const std::lock_guard lock(vector.domain.mutex);
  for (size_t i = 0; i < count; ++i) {
    const std::optional<Address> name = next(i);
    if (name) ++inserted;
    const fi_addr_t number =
        name ? vector.names.add(vector.domain.with_own_scope(*name)) : FI_ADDR_NOTAVAIL;
    if (numbers != nullptr) numbers[i] = number;
    if ((flags & FI_SYNC_ERR) != 0) static_cast<int*>(context)[i] = name ? 0 : FI_EINVAL;
    if (vector.events != nullptr && !name) {
      const fi_eq_err_entry error{
          .fid = &vector.fid, .context = context, .data = i, .err = FI_EINVAL};
      vector.events->add(0, error, FI_EINVAL);
    }
  }
  ++vector.version;
  if (vector.events == nullptr) return inserted;
  const fi_eq_entry done{
      .fid = &vector.fid, .context = context, .data = static_cast<uint64_t>(inserted)};
  vector.events->add(FI_AV_COMPLETE, done);
  return 0;
}

int insert(fid_av* vector, const void* addresses, size_t count, fi_addr_t* numbers, uint64_t flags,
           void* context) {
  const auto* at = static_cast<const uint8_t*>(addresses);
  return insert_all(
      of(vector), count, numbers, flags, context, [&](size_t /*i*/) -> std::optional<Address> {
        const auto* const address = reinterpret_cast<const sockaddr*>(at);
        at += address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        const auto name = from_sockaddr(address);
        const bool usable = name && name->port != 0 && !is_unspecified(*name);
        return usable ? name : std::nullopt;
      });
}

int insert_service(fid_av* vector, const char* node, const char* service, fi_addr_t* number,
                   uint64_t flags, void* context) {
  const auto name = resolve(node, service, of(vector).domain.family(), false, false);  // may take s
  return insert_all(of(vector), 1, number, flags, context, [&](size_t /*i*/) { return name; });
}

int remove(fid_av* vector, fi_addr_t* numbers, size_t count, uint64_t /*flags*/) {
  const std::lock_guard lock(of(vector).domain.mutex);
  int result = 0;
  for (size_t i = count; i > 0; --i) {  // backwards: the first is reused first
    if (!of(vector).names.remove(numbers[i - 1])) result = -FI_EINVAL;
  }
  ++of(vector).version;
  return result;
}

int look_up(fid_av* vector, fi_addr_t number, void* address, size_t* bytes) {
  const std::lock_guard lock(of(vector).domain.mutex);
  const Address* const name = of(vector).names.find(number);
  if (name == nullptr) return -FI_EINVAL;
  (void)copy_address(*name, address, bytes);
  return 0;
}

const char* describe(fid_av* /*vector*/, const void* address, char* buffer, size_t* length) {
  const auto name = from_sockaddr(static_cast<const sockaddr*>(address));
  const std::string text = name ? to_string(*name) : "no socket address";
  if (*length > 0) {
    const size_t kept = text.copy(buffer, *length - 1);
    buffer[kept] = 0;
  }
  *length = text.size() + 1;
  return buffer;
}

int bind_vector(fid* object, fid* other, uint64_t /*flags*/) {
  if (other->fclass != FI_CLASS_EQ) return -FI_EINVAL;
  reinterpret_cast<AddressVector*>(object)->events = reinterpret_cast<EventQueue*>(other);
  return 0;
}

fi_ops kVectorObject = object_calls(close_unused<AddressVector>, unsupported, bind_vector);
fi_ops_av kVector = {.size = sizeof(fi_ops_av),
                     .insert = safe<insert>,
                     .insertsvc = safe<insert_service>,
                     .insertsym = unsupported,
                     .remove = safe<remove>,
                     .lookup = safe<look_up>,
                     .straddr = describe,
                     .av_set = unsupported};

}  // namespace

int open_address_vector(fid_domain* domain, fi_av_attr* attr, fid_av** vector, void* context) {
  if (attr->name != nullptr) return -FI_ENOSYS;  // no address vector is shared between processes
  auto* const made = new AddressVector(*static_cast<Domain*>(domain));
  if (attr->type == FI_AV_UNSPEC) attr->type = FI_AV_TABLE;
  return hand_out(made, FI_CLASS_AV, &kVectorObject, &kVector, context, vector);
}

}  // namespace pacecar::fabric
