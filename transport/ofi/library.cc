#include "transport/ofi/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <rdma/fi_endpoint.h>

#include <array>
#include <csignal>
#include <memory>
#include <mutex>

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
  find(freeinfo_, "fi_freeinfo", "FABRIC_1.3");
  find(dupinfo_, "fi_dupinfo", "FABRIC_1.3");
  find(fabric_, "fi_fabric", "FABRIC_1.1");
  find(strerror_, "fi_strerror", "FABRIC_1.0");
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

}  // namespace pacecar
