#include "net_plugin/comm.h"

#include <utility>

#include "net_plugin/log.h"

namespace pacecar::plugin {

using nccl::NcclResult;

Comm::Comm(std::shared_ptr<Context> context, size_t nic, size_t max_requests)
    : context_(std::move(context)), nic_(nic), requests_(max_requests) {
  free_.reserve(max_requests);
  for (CommRequest& request : requests_) {
    request.comm = this;
    free_.push_back(&request);
  }
}

Result<const Memory*> Comm::register_memory(void* data, size_t size) const {
  return context_->register_memory(nic_, data, size);
}

Result<void> Comm::deregister_memory(const Memory* memory) const {
  return context_->deregister_memory(nic_, memory);
}

NcclResult Comm::track(const Result<Request*>& started, CommRequest** request) {
  if (!started) return report_once(started.error());
  if (*started == nullptr) return NcclResult::kSuccess;
  *request = free_.back();
  free_.pop_back();
  (*request)->request = *started;
  return NcclResult::kSuccess;
}

NcclResult Comm::test(CommRequest& request, int* done, int* sizes) {
  const Result<TestResult> result = poll(request.request);
  if (result && !result->done) return NcclResult::kSuccess;
  free_.push_back(&request);
  if (!result) return report_once(result.error());
  *done = 1;
  for (int i = 0; sizes != nullptr && i < result->count; ++i) {
    sizes[i] = static_cast<int>(result->sizes[static_cast<size_t>(i)]);
  }
  return NcclResult::kSuccess;
}

NcclResult Comm::report_once(const Error& error) {
  if (error.message != last_error_) {
    last_error_ = error.message;
    log(LogLevel::kWarn, description() + ": " + error.message);
  }
  return data_result(error.code);
}

SendComm::SendComm(std::shared_ptr<Context> context, size_t nic,
                   std::unique_ptr<SendConnection> connection)
    : Comm(std::move(context), nic, size_t{kMaxRequests} * kMaxReceiveBuffers),
      connection_(std::move(connection)) {}

NcclResult SendComm::isend(const void* data, size_t size, int tag, const Memory* memory,
                           CommRequest** request) {
  if (full()) return NcclResult::kSuccess;
  return track(connection_->isend(data, size, tag, memory), request);
}

Result<TestResult> SendComm::poll(Request* request) { return connection_->test(request); }

std::string SendComm::description() const { return "send to " + connection_->peer(); }

ReceiveComm::ReceiveComm(std::shared_ptr<Context> context, size_t nic,
                         std::unique_ptr<ReceiveConnection> connection)
    : Comm(std::move(context), nic, kMaxRequests), connection_(std::move(connection)) {}

NcclResult ReceiveComm::irecv(std::span<const ReceiveBuffer> buffers, CommRequest** request) {
  if (full()) return NcclResult::kSuccess;
  return track(connection_->irecv(buffers), request);
}

Result<TestResult> ReceiveComm::poll(Request* request) { return connection_->test(request); }

std::string ReceiveComm::description() const { return "receive from " + connection_->peer(); }

ListenComm::ListenComm(std::shared_ptr<Context> context, size_t nic,
                       std::unique_ptr<Listener> listener)
    : context_(std::move(context)), nic_(nic), listener_(std::move(listener)) {}

Result<std::unique_ptr<ReceiveComm>> ListenComm::accept() {
  Result<std::unique_ptr<ReceiveConnection>> connection = listener_->accept();
  if (!connection) return tl::unexpected(connection.error());
  if (*connection == nullptr) return nullptr;
  return std::make_unique<ReceiveComm>(context_, nic_, std::move(*connection));
}

}  // namespace pacecar::plugin
