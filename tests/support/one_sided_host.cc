#include "tests/support/one_sided_host.h"

#include <atomic>
#include <utility>

namespace pacecar::nccl {
namespace {

void* started(NcclResult result, void* request, std::string_view call) {
  expect_success(result, call);
  expect(request != nullptr && request != kGarbage, "an operation was started without a request");
  return request;
}

}  // namespace

OneSidedHost::OneSidedHost(const Host& host, const std::string& symbol, int device)
    : table_(find_one_sided(host.module(), symbol)) {
  expect(table_ != nullptr, "the plugin has no table " + symbol);
  expect_success(table_->init(&context_, 1, host.logger()), "init");
  expect_success(table_->listen(context_, device, handle_.data(), &listening_), "listen");
}

OneSidedHost::~OneSidedHost() {
  leave();
  table_->finalize(context_);
}

NcclResult OneSidedHost::try_join(std::vector<HandleBytes> handles, int rank, int contexts) {
  std::vector<void*> pointers;
  for (HandleBytes& handle : handles) pointers.push_back(handle.data());
  void* joined = kGarbage;
  // NCCL may pass the net plugin's context.
  const NcclResult result = table_->connect(
      kGarbage, pointers.data(), static_cast<int>(handles.size()), rank, listening_, &joined);
  table_->closeListen(std::exchange(listening_, nullptr));
  if (result != NcclResult::kSuccess) {
    expect(joined == nullptr, "a failed connect leaves something behind");
    return result;
  }
  collective_ = joined;
  return table_->createContext(collective_, contexts, &puts_);
}

void OneSidedHost::join(std::vector<HandleBytes> handles, int rank) {
  expect_success(try_join(std::move(handles), rank), "connect");
}

void OneSidedHost::leave() {
  if (puts_ != nullptr) table_->destroyContext(std::exchange(puts_, nullptr));
  if (collective_ != nullptr) table_->closeColl(std::exchange(collective_, nullptr));
  if (listening_ != nullptr) table_->closeListen(std::exchange(listening_, nullptr));
}

void* OneSidedHost::share(std::span<uint8_t> memory, int type) const {
  void* window = kGarbage;
  expect_success(table_->regMrSym(collective_, memory.data(), memory.size(), type, &window),
                 "regMrSym");
  return window;
}

void OneSidedHost::unshare(void* window) const {
  expect_success(table_->deregMrSym(collective_, window), "deregMrSym");
}

void* OneSidedHost::put(const WindowPlace& from, size_t size, const WindowPlace& to, int rank,
                        int number) const {
  void* request = kGarbage;
  const NcclResult result =
      table_->iput(puts_, number, from, size, to, static_cast<uint32_t>(rank), &request);
  return started(result, request, "iput");
}

void* OneSidedHost::put(const WindowPlace& from, size_t size, const WindowPlace& to, int rank,
                        const SignalPart& signal, int number) const {
  void* request = kGarbage;
  const NcclResult result = table_->iputSignal(puts_, number, from, size, to,
                                               static_cast<uint32_t>(rank), signal, &request);
  return started(result, request, "iputSignal");
}

void* OneSidedHost::get(const WindowPlace& from, size_t size, const WindowPlace& to,
                        int rank) const {
  void* request = kGarbage;
  const NcclResult result =
      table_->iget(puts_, 0, from, size, to, static_cast<uint32_t>(rank), &request);
  return started(result, request, "iget");
}

void* OneSidedHost::flush(void* window, int rank) const {
  void* request = kGarbage;
  const NcclResult result = table_->iflush(puts_, 0, window, static_cast<uint32_t>(rank), &request);
  return started(result, request, "iflush");
}

void OneSidedHost::finish(const std::vector<void*>& requests) const {
  for (void* const request : requests) expect_success(result_of(request), "test");
}

NcclResult OneSidedHost::result_of(void* request) const {
  NcclResult result = NcclResult::kSuccess;
  int done = 0;
  poll_until("a one-sided operation", [&] {
    result = table_->test(collective_, request, &done);
    if (done == 0 && result == NcclResult::kSuccess) table_->progress(puts_);
    return done == 1 || result != NcclResult::kSuccess;
  });
  return result;
}

NcclResult OneSidedHost::result_of_put(const WindowPlace& from, size_t size, const WindowPlace& to,
                                       int rank) const {
  void* request = kGarbage;
  const NcclResult result =
      table_->iput(puts_, 0, from, size, to, static_cast<uint32_t>(rank), &request);
  if (result == NcclResult::kSuccess) return result_of(request);
  expect(request == nullptr, "a put that was refused has a request");
  return result;
}

void OneSidedHost::await(const uint64_t& word, uint64_t value) const {
  poll_until("a signal", [&] {
    table_->progress(puts_);
    return std::atomic_ref(const_cast<uint64_t&>(word)).load() == value;
  });
}

bool OneSidedHost::has_error() const {
  bool error = true;
  expect_success(table_->queryLastError(puts_, &error), "queryLastError");
  return error;
}

}  // namespace pacecar::nccl
