// Domains, each one of Pacecar's NICs, in one Context of the process; and their memory.
#include <fmt/format.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>

#include "gdr/gpu_memory.h"
#include "net_plugin/libfabric/endpoint/endpoint.h"
#include "net_plugin/libfabric/info.h"
#include "transport/base/invalid.h"
#include "transport/base/params_environment.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/own_thread.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

struct Process {
  std::mutex mutex;  // held while a Context opens or closes: one at a time
  std::weak_ptr<Context> context;
  std::shared_ptr<GpuSystem> gpus;
};

// Never destroyed, as static destructors may close domains. A forked child begins anew.
Process& process() {
  static Process* instance = new Process;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { instance = new Process; });
  return *instance;
}

Result<std::shared_ptr<Context>> context_of_this_process() {
  const std::lock_guard lock(process().mutex);
  if (auto open = process().context.lock()) return open;
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  Options options;
  options.log = {[](void*, LogLevel level, std::string_view line) { log_line(level, line); },
                 nullptr};
  const auto list = own_nics(params.nics);
  if (!list) return fail(ErrorCode::kNotFound, "PACECAR_NICS names only NICs on libfabric itself");
  if (*list != params.nics) options.settings.emplace_back("PACECAR_NICS", *list);
  ASSIGN_OR_RETURN(auto opened, Context::open(options));
  std::shared_ptr<Context> shared = std::move(opened);
  log_line(LogLevel::kInfo, shared->banner());
  process().context = shared;
  return shared;
}

void release_context(std::shared_ptr<Context> context) {
  const std::lock_guard lock(process().mutex);
  context.reset();
}

int close_domain(fid* object) {
  auto* const domain = reinterpret_cast<Domain*>(object);
  if (const std::lock_guard lock(domain->mutex); domain->users > 0) return -FI_EBUSY;
  auto context = domain->context_of_process();
  delete domain;
  release_context(std::move(context));
  return 0;
}

// Registration is synchronous, so an event queue is accepted but gets no events.
int bind_domain(fid* /*object*/, fid* other, uint64_t /*flags*/) {
  return other->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL;
}

fi_ops kDomainObject = object_calls(safe<close_domain>, unsupported, bind_domain);
fi_ops_domain kDomain = {.size = sizeof(fi_ops_domain),
                         .av_open = safe<open_address_vector>,
                         .cq_open = safe<open_completion_queue>,
                         .endpoint = safe<open_endpoint>,
                         .scalable_ep = unsupported,
                         .cntr_open = safe<open_counter>,
                         .poll_open = unsupported,
                         .stx_ctx = unsupported,
                         .srx_ctx = unsupported,
                         .query_atomic = query_atomic,
                         .query_collective = unsupported};

}  // namespace

Result<std::shared_ptr<GpuSystem>> gpus_of_process() {
  const std::lock_guard lock(process().mutex);
  if (process().gpus != nullptr) return process().gpus;
  auto opened = GpuSystem::open();
  if (opened) process().gpus = *opened;
  return opened;
}

int open_domain(fid_fabric* /*fabric*/, fi_info* info, fid_domain** domain, void* context) {
  auto opened = context_of_this_process();
  if (!opened) return failed(opened.error());
  const auto nics = (*opened)->nics();
  const char* const wanted = info->domain_attr->name;
  const auto nic = std::ranges::find_if(nics, [&](const NicInfo& one) {
    return one.ports == 1 && (wanted == nullptr || one.name == wanted);
  });
  if (nic == nics.end()) {
    release_context(std::move(*opened));
    return -FI_ENODEV;
  }
  const auto number = static_cast<size_t>(nic - nics.begin());
  const auto params = load_params_from_environment({}, nullptr);
  auto* const made = new Domain(std::move(*opened), number, *info, params.value_or(Params()));
  if (const auto driver = made->make_driver(); !driver) {
    close_domain(&made->fid);
    return failed(driver.error());
  }
  made->mr = &memory_calls;
  if (info->domain_attr->data_progress == FI_PROGRESS_AUTO) made->enable_auto_progress();
  return hand_out(made, FI_CLASS_DOMAIN, &kDomainObject, &kDomain, context, domain);
}

Domain::Domain(std::shared_ptr<Context> context, size_t nic, const fi_info& info,
               const Params& params)
    : fid_domain{},
      context_(std::move(context)),
      nic_(nic),
      mr_mode_(info.domain_attr->mr_mode == FI_MR_BASIC      ? static_cast<int>(kMrModes)
               : info.domain_attr->mr_mode == FI_MR_SCALABLE ? 0
                                                             : info.domain_attr->mr_mode),
      family_(info.addr_format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET),
      cma_(params.cma == AutoOrOff::kAuto),
      ports_(params.ports) {}

Result<void> Domain::make_driver() {
  // The keeper takes over after this time without a call.
  constexpr Duration kAway = Duration::from_ms(1);
  ASSIGN_OR_RETURN(driver_, ProgressDriver::make(
                                keeper_, {.patience = kAway, .nap = kAway, .longest_nap = kAway}));
  return {};
}

Domain::~Domain() {
  if (driver_ != nullptr) driver_->stop();
}

Address Domain::with_own_scope(Address name) const {
  const uint32_t scope =
      is_link_local(name) ? if_nametoindex(context_->nics()[nic_].device.c_str()) : 0;
  if (scope != 0) name.scope_id = scope;
  return name;
}

void Domain::progress() {
  for (Endpoint* const endpoint : endpoints) endpoint->progress();
  if (!owes_progress_.load(std::memory_order_relaxed)) return;
  owes_progress_ = std::ranges::any_of(
      endpoints, [](const Endpoint* endpoint) { return endpoint->owes_progress(); });
}

bool Domain::prepare_to_rest() {
  return std::ranges::all_of(endpoints,
                             [](Endpoint* endpoint) { return endpoint->prepare_to_rest(); });
}

void Domain::enable_auto_progress() {
  auto_progress_ = true;
  driver_->start();
  driver_->wake();
}

void Domain::progress_while_owed() {
  if (owes_progress_.exchange(true)) return;
  owed_progress_ = true;
  try {
    driver_->start();
  } catch (const std::system_error&) {
    return;  // no thread can be made: the application's next call sends
  }
  driver_->wake();
}

Turn Domain::Keeper::take_turn() {
  if (!domain.progress_enabled()) return Turn::kIdle;
  const std::lock_guard lock(domain.mutex);  // it is held only briefly
  // Without memory it is idle: the application's next call fails.
  const int idle = guarded([this] { return domain.progress(), int{domain.prepare_to_rest()}; });
  return idle != 0 ? Turn::kIdle : Turn::kMoved;
}

// While the application calls, the keeper naps only with automatic progress, or if progress is or
// was owed since it looked last: an application that often leaves some wakes it once in a nap.
bool Domain::Keeper::needed() {
  return domain.owed_progress_.exchange(false) || domain.progress_enabled();
}

// A rest ends by itself; where no progress is wanted, the keeper sleeps until it is.
void Domain::Keeper::prepare_to_sleep() {
  rests = domain.progress_enabled();
  domain.driver_->announce_sleep(Instant::never());
}

void Domain::Keeper::sleep(Instant until, int bell) {
  if (rests) return domain.context_->rest(domain.nic_);
  pollfd woken{bell, POLLIN, 0};
  sleep_until(until, {&woken, 1});
}

namespace {

int bind_region(fid* object, fid* other, uint64_t flags) {
  auto& region = *reinterpret_cast<MemoryRegion*>(object);
  if (other->fclass == FI_CLASS_EP) return 0;  // a region is valid for all endpoints of the domain
  if (other->fclass != FI_CLASS_CNTR || (flags & FI_REMOTE_WRITE) == 0) return -FI_EINVAL;
  const std::lock_guard lock(region.domain.mutex);
  region.counter = reinterpret_cast<Counter*>(other);
  return 0;
}

int control_region(fid* /*object*/, int command, void* /*argument*/) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

constexpr int kAccessMs = 20000;  // For accesses to a region that are under way when it is closed.

// Accesses that are under way end first: a put that fails, fails all between its two endpoints.
int close_region(fid* object) {
  auto& region = *reinterpret_cast<MemoryRegion*>(object);
  {
    const std::lock_guard lock(region.domain.mutex);
    region.domain.regions.erase(region.key);
  }
  const auto unused = [&] {
    return std::ranges::none_of(region.domain.endpoints,
                                [&](Endpoint* one) { return one->reaches(region); });
  };
  (void)region.domain.wait(unused, kAccessMs);
  return close_object<MemoryRegion>(object);
}

fi_ops kRegionObject = object_calls(safe<close_region>, control_region, safe<bind_region>);

Result<std::unique_ptr<StagedRange>> gpu_memory(const iovec& range, int ordinal) {
  ASSIGN_OR_RETURN(const auto gpus, gpus_of_process());
  ASSIGN_OR_RETURN(const auto kind,
                   kind_of_gpu_range(gpus->driver(), range.iov_base, range.iov_len));
  if (kind.device != ordinal) {
    return invalid("this memory is of GPU {}, not {}: fi_mr_attr::device.cuda says whose",
                   kind.device, ordinal);
  }
  ASSIGN_OR_RETURN(auto engine, gpus->engine(ordinal));
  return std::make_unique<StagedRange>(std::move(engine), range.iov_base, range.iov_len);
}

int register_attr(fid* object, const fi_mr_attr* attr, uint64_t /*flags*/, fid_mr** made) {
  if (object->fclass != FI_CLASS_DOMAIN || attr->iov_count != 1) return -FI_EINVAL;
  const bool gpu = attr->iface == FI_HMEM_CUDA;
  if (attr->iface != FI_HMEM_SYSTEM && !gpu) return -FI_ENOSYS;
  auto& domain = *reinterpret_cast<Domain*>(object);
  const std::lock_guard lock(domain.mutex);
  const bool own_key = (domain.mr_mode() & FI_MR_PROV_KEY) == 0;
  if (own_key && domain.regions.contains(attr->requested_key)) return -FI_ENOKEY;
  std::unique_ptr<StagedRange> device;
  if (gpu) {
    auto found = gpu_memory(attr->mr_iov[0], attr->device.cuda);
    if (!found) return failed(found.error());
    device = std::move(*found);
  }
  auto* const region = new MemoryRegion(domain, *attr);
  region->device = std::move(device);
  region->fid = {.fclass = FI_CLASS_MR, .context = attr->context, .ops = &kRegionObject};
  region->mem_desc = region;
  region->key = own_key ? attr->requested_key : domain.next_key++;
  domain.regions[region->key] = region;
  *made = region;
  return 0;
}

int register_pieces(fid* object, const iovec* iov, size_t count, uint64_t access, uint64_t offset,
                    uint64_t requested_key, uint64_t flags, fid_mr** made, void* context) {
  const fi_mr_attr attr{.mr_iov = iov,
                        .iov_count = count,
                        .access = access,
                        .offset = offset,
                        .requested_key = requested_key,
                        .context = context};
  return register_attr(object, &attr, flags, made);
}

int register_one(fid* object, const void* buffer, size_t length, uint64_t access, uint64_t offset,
                 uint64_t requested_key, uint64_t flags, fid_mr** made, void* context) {
  const iovec iov{const_cast<void*>(buffer), length};
  return register_pieces(object, &iov, 1, access, offset, requested_key, flags, made, context);
}

}  // namespace

fi_ops_mr memory_calls = {.size = sizeof(fi_ops_mr),
                          .reg = safe<register_one>,
                          .regv = safe<register_pieces>,
                          .regattr = safe<register_attr>};

MemoryRegion::MemoryRegion(Domain& its_domain, const fi_mr_attr& attr)
    : fid_mr{},
      InDomain(its_domain),
      base(static_cast<uint8_t*>(attr.mr_iov[0].iov_base)),
      length(attr.mr_iov[0].iov_len),
      access(attr.access),
      first((its_domain.mr_mode() & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(base)
                                                          : attr.offset),
      guard(random_u64() | 1) {}

MemoryRegion::~MemoryRegion() {
  const std::lock_guard lock(domain.mutex);
  guard = 0;  // from now on no peer reads the memory, which is the application's again
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before whatever it writes there
  for (Endpoint* const endpoint : domain.endpoints) endpoint->forget(*this);
  for (const auto& [nic, memory] : registered) {
    (void)domain.pacecar().deregister_memory(nic, memory);
  }
}

Result<const Memory*> MemoryRegion::on(size_t nic) {
  const auto known = registered.find(nic);
  if (known != registered.end()) return known->second;
  auto memory = domain.pacecar().register_memory(nic, base, length);
  if (memory) registered[nic] = *memory;
  return memory;
}

uint8_t* MemoryRegion::find(uint64_t address, uint64_t bytes) const {
  const uint64_t offset = address - first;
  return bytes <= length && offset <= length - bytes ? base + offset : nullptr;
}

}  // namespace pacecar::fabric
