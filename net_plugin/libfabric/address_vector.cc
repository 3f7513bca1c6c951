#include <algorithm>
#include <charconv>
#include <cstring>

#include "net_plugin/libfabric/info.h"
#include "net_plugin/libfabric/link/socket_name.h"
#include "net_plugin/libfabric/objects.h"

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
    const std::optional<Name> name = next(i);
    if (name) ++inserted;
    const fi_addr_t number = name ? vector.names.add(*name) : FI_ADDR_NOTAVAIL;
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
  return guarded([&] {
    const auto* at = static_cast<const uint8_t*>(addresses);
    return insert_all(of(vector), count, numbers, flags, context,
                      [&](size_t /*i*/) -> std::optional<Name> {
                        const auto* const address = reinterpret_cast<const sockaddr*>(at);
                        const auto name = name_of(address);
                        at += name ? name->size() : sizeof(sockaddr_in);
                        if (!name || port_of(*name) == 0 || is_any(*name)) return std::nullopt;
                        return name;
                      });
  });
}

int insert_service(fid_av* vector, const char* node, const char* service, fi_addr_t* number,
                   uint64_t flags, void* context) {
  return guarded([&] {
    return insert_all(of(vector), 1, number, flags, context, [&](size_t /*i*/) {
      return resolve(node, service, of(vector).domain.family(), false, false);
    });
  });
}

// Adds to the number at the end: "10.0.0.7" and 2 give "10.0.0.9".
std::optional<std::string> count_on(const std::string& text, size_t more) {
  const size_t digits = text.find_last_not_of("0123456789") + 1;
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data() + digits, text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return text.substr(0, digits) + std::to_string(number + more);
}

int insert_symmetric(fid_av* vector, const char* node, size_t nodes, const char* service,
                     size_t services, fi_addr_t* numbers, uint64_t flags, void* context) {
  return guarded([&]() -> int {
    if (node == nullptr || service == nullptr) return -FI_EINVAL;
    return insert_all(
        of(vector), nodes * services, numbers, flags, context,
        [&](size_t i) -> std::optional<Name> {
          const auto host =
              nodes == 1 ? std::optional<std::string>(node) : count_on(node, i / services);
          const auto port = count_on(service, i % services);
          if (!host || !port) return std::nullopt;
          return resolve(host->c_str(), port->c_str(), of(vector).domain.family(), false, false);
        });
  });
}

int remove(fid_av* vector, fi_addr_t* numbers, size_t count, uint64_t /*flags*/) {
  return guarded([&] {
    const std::lock_guard lock(of(vector).domain.mutex);
    int result = 0;
    for (size_t i = count; i > 0; --i) {  // backwards: the first is reused first
      if (!of(vector).names.remove(numbers[i - 1])) result = -FI_EINVAL;
    }
    ++of(vector).version;
    return result;
  });
}

int look_up(fid_av* vector, fi_addr_t number, void* address, size_t* bytes) {
  return guarded([&]() -> int {
    const std::lock_guard lock(of(vector).domain.mutex);
    const Name* const name = of(vector).names.find(number);
    if (name == nullptr) return -FI_EINVAL;
    std::memcpy(address, name->data(), std::min(*bytes, name->size()));
    *bytes = name->size();
    return 0;
  });
}

const char* describe(fid_av* /*vector*/, const void* address, char* buffer, size_t* length) {
  const auto name = name_of(static_cast<const sockaddr*>(address));
  const std::string text = name ? name_text(*name) : "no socket address";
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
                     .insert = insert,
                     .insertsvc = insert_service,
                     .insertsym = insert_symmetric,
                     .remove = remove,
                     .lookup = look_up,
                     .straddr = describe,
                     .av_set = unsupported};

}  // namespace

int open_address_vector(fid_domain* domain, fi_av_attr* attr, fid_av** vector, void* context) {
  return guarded([&]() -> int {
    if (attr->name != nullptr) return -FI_ENOSYS;  // no address vector is shared between processes
    auto* const made = new AddressVector(*static_cast<Domain*>(domain));
    if (attr->type == FI_AV_UNSPEC) attr->type = FI_AV_TABLE;
    return hand_out(made, FI_CLASS_AV, &kVectorObject, &kVector, context, vector);
  });
}

}  // namespace pacecar::fabric
