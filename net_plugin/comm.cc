#include "net_plugin/comm.h"

#include <algorithm>
#include <utility>

#include "net_plugin/log.h"
#include "transport/base/return_if_error.h"

namespace pacecar::plugin {
namespace {

using nccl::NcclResult;

bool sends(const Comm::Connection& connection) { return connection.index() == 0; }

}  // namespace

Comm::Comm(std::shared_ptr<Context> context, Connection connection)
    : context_(std::move(context)),
      connection_(std::move(connection)),
      nic_(std::visit([](const auto& end) { return end->nic(); }, connection_)),
      // Each receive may be flushed.
      requests_(size_t{kMaxRequests} * (sends(connection_) ? kMaxReceiveBuffers : 2)) {
  free_.reserve(requests_.size());
  for (CommRequest& request : requests_) {
    request.comm = this;
    free_.push_back(&request);
  }
}

NcclResult Comm::isend(const void* data, size_t size, int tag, const Memory* memory,
                       CommRequest** request) {
  if (free_.empty()) return NcclResult::kSuccess;
  return track(std::get<0>(connection_)->isend(data, size, tag, memory), request);
}

NcclResult Comm::irecv(std::span<const ReceiveBuffer> buffers, CommRequest** request) {
  if (free_.empty()) return NcclResult::kSuccess;
  return track(std::get<1>(connection_)->irecv(buffers), request);
}

// A flush covers all writes of the NIC to that GPU, and a receive's buffers are all on one GPU.
NcclResult Comm::iflush(std::span<const ReceiveBuffer> buffers, CommRequest** request) {
  const auto last = std::find_if(buffers.rbegin(), buffers.rend(),
                                 [](const ReceiveBuffer& buffer) { return buffer.size > 0; });
  if (last == buffers.rend() || last->memory == nullptr) return NcclResult::kSuccess;
  if (free_.empty()) {
    return report_once(
        {ErrorCode::kInternal, "more requests and flushes than the properties allow"});
  }
  const auto flush = context_->start_flush(nic_, last->memory, last->data);
  if (!flush) return report_once(flush.error());
  if (*flush) *request = take(nullptr, *flush);
  return NcclResult::kSuccess;
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

Result<TestResult> Comm::poll(const CommRequest& request) const {
  if (!request.flush) {
    return std::visit([&](const auto& end) { return end->test(request.request); }, connection_);
  }
  ASSIGN_OR_RETURN(const bool done, context_->flushed(nic_, *request.flush));
  return TestResult{.done = done};
}

NcclResult Comm::test(CommRequest& request, int* done, int* sizes) {
  if (request.failed) return data_result(*request.failed);
  const Result<TestResult> result = poll(request);
  if (result && !result->done) return NcclResult::kSuccess;
  if (!result) {
    request.failed = result.error().code;
    return report_once(result.error());
  }
  free_.push_back(&request);
  *done = 1;
  for (int i = 0; sizes != nullptr && i < result->count; ++i) {
    sizes[i] = static_cast<int>(result->sizes[static_cast<size_t>(i)]);
  }
  return NcclResult::kSuccess;
}

NcclResult Comm::report_once(const Error& error) {
  if (error.message != last_error_) {
    last_error_ = error.message;
    const std::string peer = std::visit([](const auto& end) { return end->peer(); }, connection_);
    log(LogLevel::kWarn,
        (sends(connection_) ? "send to " : "receive from ") + peer + ": " + error.message);
  }
  return data_result(error.code);
}

}  // namespace pacecar::plugin
