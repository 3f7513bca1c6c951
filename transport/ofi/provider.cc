#include "transport/ofi/provider.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
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

constexpr int kKnownMemoryModes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_HMEM;
// Legacy modes: each stands for several, cannot be combined, and has no name in later versions.
constexpr int kLoneMemoryModes = 0b11;
constexpr uint64_t kWriteOrder = FI_ORDER_WAW | FI_ORDER_RMA_WAW;
constexpr Bytes kDefaultMtu = 4096;
// The size of control writes and messages, which fit into a command of shm.
constexpr Bytes kWord = 64;

InfoHandle query(const OfiLibrary& library, const fi_info& hints) {
  fi_info* infos = nullptr;
  const int error = library.getinfo(&hints, &infos);
  return InfoHandle(error == 0 ? infos : nullptr, InfoDeleter{&library});
}

// Requirements for fi_getinfo, which are added one by one.
struct Hints {
  explicit Hints(const OfiLibrary& library, std::string_view provider)
      : info(library.dupinfo(nullptr), InfoDeleter{&library}) {
    if (!provider.empty()) info->fabric_attr->prov_name = strndup(provider.data(), provider.size());
    info->domain_attr->mr_mode = ~kLoneMemoryModes;
    info->mode = ~uint64_t{0};
  }
  void want_datagrams() { info->ep_attr->type = FI_EP_RDM; }
  void want_writes() { info->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE; }

  InfoHandle info;
};

std::string text_or(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

std::vector<OfiProvider> one_per_domain(const OfiLibrary& library, const fi_info* infos) {
  std::vector<OfiProvider> found;
  for (const fi_info* info = infos; info != nullptr; info = info->next) {
    OfiProvider provider{.name = text_or(info->fabric_attr->prov_name, "?"),
                         .domain = text_or(info->domain_attr->name, "?"),
                         .flaw = flaw_of(*info),
                         .traits = traits_of(*info),
                         .info = InfoHandle(library.dupinfo(info), InfoDeleter{&library})};
    const auto same = [&](const OfiProvider& other) {
      return other.name == provider.name && other.domain == provider.domain;
    };
    if (std::ranges::none_of(found, same)) found.push_back(std::move(provider));
  }
  return found;
}

// Replaces providers by the same ones with GPU memory, if they have it. This is a request of its
// own, because a provider may lose other capabilities by it. Without a device that moves the data,
// staging through the host costs less.
void ask_for_gpu_memory(const OfiLibrary& library, Hints& hints,
                        std::vector<OfiProvider>& providers) {
  if (!library.takes_dmabufs()) return;
  hints.info->caps |= FI_HMEM;
  const InfoHandle infos = query(library, *hints.info);
  for (OfiProvider& able : one_per_domain(library, infos.get())) {
    if (!able.flaw.empty() || !able.traits.device) continue;
    const auto same = std::ranges::find_if(providers, [&](const OfiProvider& other) {
      return other.name == able.name && other.domain == able.domain;
    });
    if (same != providers.end()) *same = std::move(able);
  }
}

std::string names_of(const std::vector<OfiProvider>& providers) {
  std::string names;
  for (const OfiProvider& provider : providers) {
    if (!provider.flaw.empty()) continue;
    const std::string name = fmt::format("ofi:{}:{}", provider.name, provider.domain);
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "none" : names;
}

// Why a provider offers nothing that we can use.
Error why_not(const OfiLibrary& library, std::string_view name) {
  Hints hints(library, name);
  InfoHandle infos = query(library, *hints.info);
  if (infos == nullptr) {
    const auto others = list_ofi_providers();
    return {ErrorCode::kNotFound,
            fmt::format("libfabric {} has no provider '{}' that finds a device here: choose from "
                        "{}",
                        library.version(), name, others ? names_of(*others) : "none")};
  }
  hints.want_datagrams();
  if (InfoHandle able = query(library, *hints.info); able != nullptr) infos = std::move(able);
  const std::string flaw = flaw_of(*infos);
  return {ErrorCode::kInvalidArgument,
          fmt::format("libfabric's provider '{}' {}: choose another with PACECAR_NICS", name,
                      flaw.empty() ? "needs a mode that Pacecar does not know" : flaw)};
}

bool leaves_host(const OfiProvider& provider) { return provider.domain != "lo"; }

}  // namespace

// --- the library ---

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

// --- providers ---

std::string_view lowest_layer(std::string_view provider) {
  return provider.substr(0, provider.find(';'));
}

OfiTraits traits_of(const fi_info& info) {
  const int mode = info.domain_attr->mr_mode;
  const bool host_only = lowest_layer(text_or(info.fabric_attr->prov_name, "")) == "shm";
  const uint32_t protocol = info.ep_attr->protocol;
  const bool connects = protocol == FI_PROTO_RXM || protocol == FI_PROTO_RXM_TCP ||
                        protocol == FI_PROTO_XNET || protocol == FI_PROTO_SOCK_TCP;
  const size_t key_bytes = std::min<size_t>(info.domain_attr->mr_key_size, 8);
  OfiTraits traits{.virtual_addresses = (mode & FI_MR_VIRT_ADDR) != 0,
                   .provider_keys = (mode & FI_MR_PROV_KEY) != 0,
                   .local_keys = (mode & FI_MR_LOCAL) != 0,
                   .endpoint_memory = (mode & FI_MR_ENDPOINT) != 0,
                   .ordered = (info.tx_attr->msg_order & kWriteOrder) != 0 &&
                              info.ep_attr->max_order_waw_size >= OfiTraits::kMaxWrite,
                   .host_only = host_only,
                   .connects = connects,
                   .device = (mode & FI_MR_ALLOCATED) != 0,
                   .gpu_memory = (info.caps & FI_HMEM) != 0,
                   .key_mask = key_bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * key_bytes) - 1,
                   .queue = info.tx_attr->size,
                   .inject = info.tx_attr->inject_size,
                   .word = host_only ? kWord : 0,
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

std::string flaw_of(const fi_info& info) {
  if (info.ep_attr->type != FI_EP_RDM) return "has no reliable datagrams (FI_EP_RDM)";
  constexpr uint64_t kNeeded = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  // FI_RMA alone stands for all kinds of RMA.
  const uint64_t kinds = info.caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
  if ((info.caps & FI_RMA) == 0 || (kinds != 0 && (info.caps & kNeeded) != kNeeded)) {
    return "has no remote writes (FI_RMA)";
  }
  if (const int unknown = info.domain_attr->mr_mode & ~kKnownMemoryModes; unknown != 0) {
    return fmt::format("registers memory in a way that Pacecar does not know (mr_mode {:#x})",
                       unknown);
  }
  if (info.domain_attr->mr_key_size == 0 || info.domain_attr->mr_key_size > 8) {
    return fmt::format("has memory keys of {} bytes, and 1 to 8 are possible",
                       info.domain_attr->mr_key_size);
  }
  if (info.ep_attr->max_msg_size < kDefaultMtu) {
    return fmt::format("writes at most {} bytes at once, and {} are needed",
                       info.ep_attr->max_msg_size, kDefaultMtu);
  }
  return {};
}

Result<std::vector<OfiProvider>> list_ofi_providers() {
  ASSIGN_OR_RETURN(const auto library, OfiLibrary::load());
  Hints hints(*library, {});
  hints.want_datagrams();
  hints.want_writes();
  const InfoHandle infos = query(*library, *hints.info);
  std::vector<OfiProvider> found = one_per_domain(*library, infos.get());
  ask_for_gpu_memory(*library, hints, found);
  return found;
}

Result<OfiProvider> choose_ofi_provider(std::string_view name, std::string_view domain,
                                        bool gpu_memory) {
  ASSIGN_OR_RETURN(const auto library, OfiLibrary::load());
  Hints hints(*library, name);
  hints.want_datagrams();
  hints.want_writes();
  hints.info->mode = FI_CONTEXT | FI_CONTEXT2;
  hints.info->domain_attr->mr_mode = kKnownMemoryModes;
  hints.info->domain_attr->threading = FI_THREAD_DOMAIN;
  hints.info->tx_attr->msg_order = kWriteOrder;
  InfoHandle infos = query(*library, *hints.info);
  if (infos == nullptr) {
    hints.info->tx_attr->msg_order = 0;
    infos = query(*library, *hints.info);
  }
  if (infos == nullptr) return tl::unexpected(why_not(*library, name));
  std::vector<OfiProvider> found = one_per_domain(*library, infos.get());
  if (gpu_memory) ask_for_gpu_memory(*library, hints, found);
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
  if (!any->flaw.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("libfabric's provider '{}' {}: choose another with PACECAR_NICS", name,
                            any->flaw));
  }
  return std::move(*any);
}

}  // namespace pacecar
