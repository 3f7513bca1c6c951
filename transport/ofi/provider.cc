#include "transport/ofi/provider.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// The interface version that is requested: it has everything that is used except dma-bufs.
constexpr uint32_t kInterface = FI_VERSION(1, 17);
constexpr uint32_t kDmabufInterface = FI_VERSION(1, 20);
#ifdef FI_MR_DMABUF
constexpr bool kKnowsDmabufs = true;
#else
constexpr bool kKnowsDmabufs = false;
#endif

// Restores the process's handlers of these signals.
class KeepSignalHandlers {
 public:
  KeepSignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeepSignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &kept_[i], nullptr);
  }
  KeepSignalHandlers(const KeepSignalHandlers&) = delete;
  KeepSignalHandlers& operator=(const KeepSignalHandlers&) = delete;

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT,  SIGQUIT, SIGILL,  SIGABRT, SIGBUS,
                                          SIGFPE, SIGSEGV, SIGTERM, SIGPIPE, SIGTRAP, SIGSYS};
  std::array<struct sigaction, kSignals.size()> kept_{};
};

constexpr int kMemoryModes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_HMEM;
constexpr uint64_t kWriteOrder = FI_ORDER_WAW | FI_ORDER_RMA_WAW;
constexpr Bytes kDefaultMtu = 4096;
constexpr std::string_view kSharedMemory = "shm";

InfoHandle query(const OfiLibrary& library, const fi_info& hints) {
  fi_info* infos = nullptr;
  const int error = library.getinfo(&hints, &infos);
  return InfoHandle(error == 0 ? infos : nullptr, InfoDeleter{&library});
}

// Reliable datagrams, remote writes in this order, and modes that we know. `name` empty: any.
InfoHandle make_hints(const OfiLibrary& library, std::string_view name, uint64_t order) {
  InfoHandle hints(library.dupinfo(nullptr), InfoDeleter{&library});
  if (!name.empty()) hints->fabric_attr->prov_name = strndup(name.data(), name.size());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = kMemoryModes;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->tx_attr->msg_order = order;
  return hints;
}

std::string text_or(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

bool is_link_local(const fi_info& info) {
  const auto* const own = static_cast<const sockaddr_in6*>(info.src_addr);
  return info.addr_format == FI_SOCKADDR_IN6 && own != nullptr &&
         IN6_IS_ADDR_LINKLOCAL(&own->sin6_addr);
}

std::vector<OfiProvider> one_per_domain(const OfiLibrary& library, const InfoHandle& infos) {
  std::vector<OfiProvider> found;
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next) {
    if (!is_usable(*info)) continue;
    OfiProvider provider{.name = text_or(info->fabric_attr->prov_name, "?"),
                         .domain = text_or(info->domain_attr->name, "?"),
                         .traits = traits_of(*info),
                         .info = InfoHandle(library.dupinfo(info), InfoDeleter{&library})};
    const auto same = [&](const OfiProvider& other) {
      return other.name == provider.name && other.domain == provider.domain;
    };
    const auto known = std::ranges::find_if(found, same);
    if (known == found.end()) {
      found.push_back(std::move(provider));
    } else if (is_link_local(*known->info) && !is_link_local(*info)) {
      *known = std::move(provider);
    }
  }
  return found;
}

// Providers with GPU memory, if they have it, instead of the same ones without. This is a request
// of its own, because a provider may lose other capabilities by it. Without a device that moves the
// data, staging through the host costs less.
std::vector<OfiProvider> find(const OfiLibrary& library, std::string_view name, uint64_t order,
                              bool gpu_memory) {
  const InfoHandle hints = make_hints(library, name, order);
  std::vector<OfiProvider> found = one_per_domain(library, query(library, *hints));
  if (!gpu_memory || !library.takes_dmabufs()) return found;
  hints->caps |= FI_HMEM;
  for (OfiProvider& able : one_per_domain(library, query(library, *hints))) {
    if (!able.traits.device) continue;
    const auto same = std::ranges::find_if(found, [&](const OfiProvider& other) {
      return other.name == able.name && other.domain == able.domain;
    });
    if (same != found.end()) *same = std::move(able);
  }
  return found;
}

std::string names_of(const std::vector<OfiProvider>& providers) {
  std::string names;
  for (const OfiProvider& provider : providers) {
    names += fmt::format("{}ofi:{}:{}", names.empty() ? "" : ", ", provider.name, provider.domain);
  }
  return names.empty() ? "none" : names;
}

bool leaves_host(const OfiProvider& provider) { return provider.domain != "lo"; }

}  // namespace

Result<const OfiLibrary*> OfiLibrary::load(const std::string& file) {
  static std::mutex mutex;
  static std::unique_ptr<const OfiLibrary> loaded;  // never unloaded
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded.get();
  const KeepSignalHandlers keep;
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("libfabric is not there ({}): install it (libfabric1)", dlerror()));
  }
  auto library = std::make_unique<OfiLibrary>();
  if (const std::string missing = library->resolve(handle); !missing.empty()) {
    dlclose(handle);
    return fail(ErrorCode::kUnavailable,
                fmt::format("libfabric lacks {}: install version 1.17 or later", missing));
  }
  if (library->version_() < kInterface) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("libfabric is version {}: install version 1.17 or later", library->version()));
  }
  loaded = std::move(library);
  return loaded.get();
}

// Later versions keep these symbols for programs built with the structures of 1.17.
std::string OfiLibrary::resolve(void* library) {
  std::string missing;
  const auto find = [&](auto& entry, const char* symbol, const char* version) {
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(
        dlvsym(library, symbol, version));
    if (entry == nullptr) missing = symbol;
  };
  find(getinfo_, "fi_getinfo", "FABRIC_1.3");
  find(freeinfo, "fi_freeinfo", "FABRIC_1.3");
  find(dupinfo, "fi_dupinfo", "FABRIC_1.3");
  find(fabric, "fi_fabric", "FABRIC_1.1");
  find(strerror, "fi_strerror", "FABRIC_1.0");
  find(version_, "fi_version", "FABRIC_1.0");
  return missing;
}

int OfiLibrary::getinfo(const fi_info* hints, fi_info** infos) const {
  const KeepSignalHandlers keep;
  return getinfo_(takes_dmabufs() ? kDmabufInterface : kInterface, nullptr, nullptr, 0, hints,
                  infos);
}

int OfiLibrary::endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint) const {
  const KeepSignalHandlers keep;
  return fi_endpoint(domain, info, endpoint, nullptr);
}

bool OfiLibrary::takes_dmabufs() const { return kKnowsDmabufs && version_() >= kDmabufInterface; }

std::string OfiLibrary::version() const {
  const uint32_t version = version_();
  return fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
}

std::string_view lowest_layer(std::string_view provider) {
  return provider.substr(0, provider.find(';'));
}

OfiTraits traits_of(const fi_info& info) {
  const int mode = info.domain_attr->mr_mode;
  const uint32_t protocol = info.ep_attr->protocol;
  const bool connects = protocol == FI_PROTO_RXM || protocol == FI_PROTO_RXM_TCP ||
                        protocol == FI_PROTO_XNET || protocol == FI_PROTO_SOCK_TCP;
  const size_t key_bytes = std::min<size_t>(info.domain_attr->mr_key_size, 8);
  OfiTraits traits{.virtual_addresses = (mode & FI_MR_VIRT_ADDR) != 0,
                   .endpoint_memory = (mode & FI_MR_ENDPOINT) != 0,
                   .ordered = (info.tx_attr->msg_order & kWriteOrder) != 0 &&
                              info.ep_attr->max_order_waw_size >= OfiTraits::kMaxWrite,
                   .connects = connects,
                   .device = (mode & FI_MR_ALLOCATED) != 0,
                   .gpu_memory = (info.caps & FI_HMEM) != 0,
                   .key_mask = key_bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * key_bytes) - 1,
                   .queue = info.tx_attr->size,
                   .inject = info.tx_attr->inject_size,
                   .max_write = std::min<Bytes>(info.ep_attr->max_msg_size, OfiTraits::kMaxWrite),
                   .mtu = kDefaultMtu};
  if (info.nic != nullptr && info.nic->link_attr != nullptr) {
    traits.speed = Rate::from_bps(info.nic->link_attr->speed);
    if (info.nic->link_attr->mtu > 0) traits.mtu = info.nic->link_attr->mtu;
  }
  // A processor places the parts of a write in order; a device may not.
  const bool in_parts =
      !traits.device && std::min(info.tx_attr->iov_limit, info.tx_attr->rma_iov_limit) >= 2;
  traits.notification = !traits.ordered ? OfiNotification::kAfterDelivery
                        : in_parts      ? OfiNotification::kWithWrite
                                        : OfiNotification::kAfterWrite;
  return traits;
}

bool is_usable(const fi_info& info) {
  const size_t key_bytes = info.domain_attr->mr_key_size;
  return key_bytes >= 1 && key_bytes <= 8 && info.ep_attr->max_msg_size >= kDefaultMtu &&
         lowest_layer(text_or(info.fabric_attr->prov_name, "")) != kSharedMemory;
}

Result<std::vector<OfiProvider>> list_ofi_providers() {
  ASSIGN_OR_RETURN(const auto library, OfiLibrary::load());
  return find(*library, {}, 0, true);
}

Result<OfiProvider> choose_ofi_provider(std::string_view name, std::string_view domain,
                                        bool gpu_memory) {
  if (lowest_layer(name) == kSharedMemory) {
    return fail(ErrorCode::kInvalidArgument,
                "Pacecar does not use libfabric's shm, which reaches this host only: choose "
                "ofi:tcp:lo or soft:udp:lo (NCCL has shared memory of its own)");
  }
  ASSIGN_OR_RETURN(const auto library, OfiLibrary::load());
  std::vector<OfiProvider> found = find(*library, name, kWriteOrder, gpu_memory);
  if (found.empty()) found = find(*library, name, 0, gpu_memory);
  if (found.empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("libfabric {} has no provider '{}' that finds a device here and has "
                            "reliable datagrams (FI_EP_RDM) and remote writes (FI_RMA): choose "
                            "from {}",
                            library->version(), name, names_of(find(*library, {}, 0, false))));
  }
  std::erase_if(found, [name](const OfiProvider& provider) {
    return provider.name != name && lowest_layer(provider.name) != name;
  });
  const auto chosen = domain.empty() ? std::ranges::find_if(found, leaves_host)
                                     : std::ranges::find(found, domain, &OfiProvider::domain);
  const auto any = domain.empty() && chosen == found.end() ? found.begin() : chosen;
  if (any == found.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("libfabric's provider '{}' has no domain '{}' here: choose from {}",
                            name, domain, names_of(found)));
  }
  return std::move(*any);
}

}  // namespace pacecar
