#include "net_plugin/comm.h"

#include <algorithm>
#include <utility>

#include "net_plugin/log.h"
#include "net_plugin/profiler/net_events.h"
#include "transport/base/return_if_error.h"

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

NcclResult Comm::track(const Result<Request*>& started, CommRequest** request) {
  if (!started) return report_once(started.error());
  if (*started != nullptr) *request = take(*started, std::nullopt);
  return NcclResult::kSuccess;
}

CommRequest* Comm::take(Request* request, std::optional<FlushId> flush) {
  CommRequest* const taken = free_.back();
  free_.pop_back();
  taken->request = request;
  taken->flush = flush;
  return taken;
}

Result<TestResult> Comm::poll_flush(FlushId flush) const {
  ASSIGN_OR_RETURN(const bool done, context_->flushed(nic_, flush));
  return TestResult{.done = done};
}

NcclResult Comm::test(CommRequest& request, int* done, int* sizes) {
  const Result<TestResult> result =
      request.flush ? poll_flush(*request.flush) : poll(request.request);
  if (result && !result->done) return NcclResult::kSuccess;
  profiler::end_net_event(std::exchange(request.event, nullptr));
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

SendComm::SendComm(std::shared_ptr<Context> context, std::unique_ptr<SendConnection> connection)
    : Comm(std::move(context), connection->nic(), size_t{kMaxRequests} * kMaxReceiveBuffers),
      connection_(std::move(connection)) {}

NcclResult SendComm::isend(const void* data, size_t size, int tag, const Memory* memory,
                           CommRequest** request) {
  if (full()) return NcclResult::kSuccess;
  return track(connection_->isend(data, size, tag, memory), request);
}

ReceiveComm::ReceiveComm(std::shared_ptr<Context> context,
                         std::unique_ptr<ReceiveConnection> connection)
    : Comm(std::move(context), connection->nic(), size_t{kMaxRequests} * 2),  // each may be flushed
      connection_(std::move(connection)) {}

NcclResult ReceiveComm::irecv(std::span<const ReceiveBuffer> buffers, CommRequest** request) {
  if (full()) return NcclResult::kSuccess;
  return track(connection_->irecv(buffers), request);
}

// A flush covers all writes of the NIC to that GPU, and a receive's buffers are all on one GPU.
NcclResult ReceiveComm::iflush(std::span<const ReceiveBuffer> buffers, CommRequest** request) {
  const auto last = std::find_if(buffers.rbegin(), buffers.rend(),
                                 [](const ReceiveBuffer& buffer) { return buffer.size > 0; });
  if (last == buffers.rend() || last->memory == nullptr) return NcclResult::kSuccess;
  if (full()) {
    return report_once(
        {ErrorCode::kInternal, "more requests and flushes than the properties allow"});
  }
  const Result<std::optional<FlushId>> flush =
      context().start_flush(nic(), last->memory, last->data);
  if (!flush) return report_once(flush.error());
  if (!*flush) return NcclResult::kSuccess;
  *request = take(nullptr, *flush);
  return NcclResult::kSuccess;
}

Result<std::unique_ptr<ReceiveComm>> ListenComm::accept() {
  ASSIGN_OR_RETURN(auto connection, listener->accept());
  if (connection == nullptr) return nullptr;
  return std::make_unique<ReceiveComm>(context, std::move(connection));
}

}  // namespace pacecar::plugin
