#include "net_plugin/communicator.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net_plugin/log.h"
#include "net_plugin/profiler/document.h"
#include "net_plugin/profiler/recorder.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar::plugin {
namespace {

struct Process {
  std::recursive_mutex mutex;  // held while a Context opens or closes: one at a time
  std::weak_ptr<Context> context;
  // The members of each bond, in order of creation: a new Context gives them the same numbers.
  std::vector<std::vector<size_t>> bonds;

  std::mutex expected_mutex;                         // never held for long
  std::map<const Communicator*, uint32_t> expected;  // senders

  void pass_hint(Context& target) const {
    uint32_t most = 0;
    for (const auto& [communicator, senders] : expected) most = std::max(most, senders);
    target.expect(most);
  }
};

// Never destroyed: NCCL may finalize from another library's static destructor. A forked child
// begins anew, as it cannot use its parent's Context.
Process& process() {
  static Process* instance = new Process;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { instance = new Process; });
  return *instance;
}

// Opens the process's Context. Data packets get `traffic_class` unless PACECAR_TC is set.
Result<std::shared_ptr<Context>> open_context(std::optional<uint32_t> traffic_class) {
  using namespace profiler;
  Options options{.settings = {}, .defaults = {}, .log = log_sink(), .pages = {}};
  options.pages = {{"/profile", "application/json", [] { return profile_document(recorder()); }}};
  if (traffic_class) options.defaults.emplace_back("PACECAR_TC", std::to_string(*traffic_class));
  ASSIGN_OR_RETURN(std::unique_ptr<Context> made, Context::open(options));
  const std::shared_ptr<Context> opened(made.release(), [](Context* closed) {
    const std::lock_guard lock(process().mutex);
    delete closed;
  });
  for (const std::vector<size_t>& bond : process().bonds) {
    RETURN_IF_ERROR(opened->bond(bond));
  }
  log(LogLevel::kInfo, opened->banner());
  for (const NicInfo& nic : opened->nics()) {
    log(LogLevel::kInfo, nic.name + ": " + nic.gpu_memory);
    if (!nic.offloads.empty()) log(LogLevel::kInfo, nic.name + ": " + nic.offloads);
  }
  return opened;
}

}  // namespace

Communicator::~Communicator() {
  const std::lock_guard lock(process().expected_mutex);
  if (process().expected.erase(this) > 0) process().pass_hint(*context_);
}

void Communicator::expect(uint32_t senders) {
  const std::lock_guard lock(process().expected_mutex);
  process().expected[this] = senders;
  process().pass_hint(*context_);
}

Result<std::unique_ptr<ListenComm>> Communicator::listen(size_t nic) const {
  ASSIGN_OR_RETURN(auto listener, context_->listen(nic));
  return std::make_unique<ListenComm>(ListenComm{context_, nic, weight_, std::move(listener)});
}

Result<std::unique_ptr<SendConnection>> Communicator::connect(size_t nic, const void* handle) {
  Handle copy;
  std::memcpy(copy.bytes.data(), handle, Handle::kBytes);

  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  auto attempt = attempts_.find({handle, nic, copy.bytes});
  if (attempt == attempts_.end()) {
    std::erase_if(attempts_,
                  [&](const auto& each) { return now - each.second.last >= connect_timeout_; });
    ASSIGN_OR_RETURN(auto connecting,
                     context_->connect(nic, copy, ConnectOptions{.weight = weight_}));
    attempt = attempts_.emplace(Attempt{handle, nic, copy.bytes}, Calls{std::move(connecting), now})
                  .first;
  }
  attempt->second.last = now;
  Result<std::unique_ptr<SendConnection>> connection = attempt->second.connecting->poll();
  if (!connection || *connection != nullptr) attempts_.erase(attempt);
  return connection;
}

void Communicator::check_traffic_class(std::optional<uint32_t> wanted) {
  const bool used = wanted == context_->nics().front().traffic_class;
  if (!wanted || used || reported_class_.exchange(*wanted) == *wanted) return;
  plugin::check_traffic_class(*context_, wanted);
}

std::optional<uint32_t> checked_traffic_class(int given) {
  constexpr int kLargest = 255;
  constexpr uint32_t kEcnBits = 3;
  if (given == nccl::kUndefined) return std::nullopt;
  if (given < 0 || given > kLargest) {
    log(LogLevel::kWarn, "the communicator's traffic class " + std::to_string(given) +
                             " is not used: give 0 to 255, the IP header's byte");
    return std::nullopt;
  }
  return static_cast<uint32_t>(given) & ~kEcnBits;
}

void check_traffic_class(const Context& context, std::optional<uint32_t> wanted) {
  const uint32_t used = context.nics().front().traffic_class;
  if (!wanted || *wanted == used) return;
  log(LogLevel::kWarn, "the communicator's traffic class " + std::to_string(*wanted) +
                           " is not used: data packets of this process have " +
                           std::to_string(used) +
                           ", by PACECAR_TC or by the process's first communicator");
}

Result<std::unique_ptr<Communicator>> open_communicator(std::optional<uint32_t> traffic_class) {
  ASSIGN_OR_RETURN(const Params params, load_params_from_environment({}, nullptr));
  const std::lock_guard lock(process().mutex);
  std::shared_ptr<Context> context = process().context.lock();
  if (context == nullptr) {
    ASSIGN_OR_RETURN(context, open_context(traffic_class));
    process().context = context;
  }
  auto communicator = std::make_unique<Communicator>(std::move(context), params);
  communicator->check_traffic_class(traffic_class);
  return communicator;
}

void close_communicator(std::unique_ptr<Communicator> communicator) {
  const std::lock_guard lock(process().mutex);
  communicator.reset();
}

const char* flaw_of_merge(std::span<const NicInfo> nics) {
  std::set<std::string_view> devices;
  std::set<std::string_view> kinds;  // "soft", "ofi", or empty for RDMA devices
  for (const NicInfo& nic : nics) {
    if (nic.pci_path.empty()) return "that are not on PCI";
    const std::string_view kind = std::string_view(nic.name).substr(0, nic.name.find(':'));
    kinds.insert(kind == "soft" || kind == "ofi" ? kind : std::string_view());
    devices.insert(nic.device);
  }
  const bool alike = kinds.size() <= 1 && devices.size() == nics.size();
  return alike ? nullptr : "of one device or of different kinds";
}

Result<size_t> make_bond(std::span<const int> nics) {
  const std::lock_guard lock(process().mutex);
  const std::shared_ptr<Context> context = process().context.lock();
  if (context == nullptr) return fail(ErrorCode::kInternal, "it was called before init");
  // A negative number becomes an index beyond all NICs.
  const std::vector<size_t> members(nics.begin(), nics.end());
  const size_t before = context->nics().size();
  const Result<size_t> made = context->bond(members);
  if (made && *made >= before) {
    process().bonds.push_back(members);
    log(LogLevel::kInfo, "device " + std::to_string(*made) + " is " + context->nics()[*made].name);
  }
  return made;
}

std::shared_ptr<Context> current_context() {
  const std::lock_guard lock(process().mutex);
  return process().context.lock();
}

}  // namespace pacecar::plugin
