#include "net_plugin/communicator.h"

#include <cstring>
#include <utility>

#include "net_plugin/log.h"

namespace pacecar::plugin {
namespace {

struct Process {
  std::mutex mutex;  // held while a Context opens or closes: one at a time
  std::weak_ptr<Context> context;
};

// Never destroyed: NCCL may finalize from another library's static destructor.
Process& process() {
  static Process* const instance = new Process;
  return *instance;
}

}  // namespace

Result<std::unique_ptr<ListenComm>> Communicator::listen(size_t nic) {
  Result<std::unique_ptr<Listener>> listener = context_->listen(nic);
  if (!listener) return tl::unexpected(listener.error());
  return std::make_unique<ListenComm>(context_, nic, std::move(*listener));
}

Result<std::unique_ptr<SendComm>> Communicator::connect(size_t nic, const void* handle) {
  Handle copy;
  std::memcpy(copy.bytes.data(), handle, Handle::kBytes);

  const std::lock_guard lock(mutex_);
  auto attempt = attempts_.find({handle, nic, copy.bytes});
  if (attempt == attempts_.end()) {
    Result<std::unique_ptr<Connecting>> connecting = context_->connect(nic, copy);
    if (!connecting) return tl::unexpected(connecting.error());
    attempt = attempts_.emplace(Attempt{handle, nic, copy.bytes}, std::move(*connecting)).first;
  }
  Result<std::unique_ptr<SendConnection>> connection = attempt->second->poll();
  if (connection && *connection == nullptr) return nullptr;
  attempts_.erase(attempt);
  if (!connection) return tl::unexpected(connection.error());
  return std::make_unique<SendComm>(context_, nic, std::move(*connection));
}

Result<std::unique_ptr<Communicator>> open_communicator() {
  const std::lock_guard lock(process().mutex);
  std::shared_ptr<Context> context = process().context.lock();
  if (context == nullptr) {
    Result<std::unique_ptr<Context>> opened =
        Context::open(Options{.settings = {}, .log = log_sink()});
    if (!opened) return tl::unexpected(opened.error());
    context = std::move(*opened);
    process().context = context;
    log(LogLevel::kInfo, context->banner());
  }
  return std::make_unique<Communicator>(std::move(context));
}

void close_communicator(std::unique_ptr<Communicator> communicator) {
  const std::lock_guard lock(process().mutex);
  communicator.reset();
}

std::shared_ptr<Context> current_context() {
  const std::lock_guard lock(process().mutex);
  return process().context.lock();
}

}  // namespace pacecar::plugin
