// The objects that programs of verbs hold. Each begins with the structure that verbs.h declares.
// Thread rule: any thread may call; a NIC's state is used with its mutex held.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "net_plugin/verbs/event_pipe.h"
#include "net_plugin/verbs/forward.h"
#include "net_plugin/verbs/process_nic.h"
#include "transport/base/fixed_queue.h"

namespace pacecar::ibverbs {

inline constexpr int kMaxSge = 32;
inline constexpr uint32_t kMaxInline = 1024;
inline constexpr int kMaxWorkRequests = 32768;
inline constexpr int kMaxCqe = 1 << 20;
inline constexpr uint32_t kMaxMessage = 1U << 30;
inline constexpr uint8_t kMaxReads = kMostReads;
// Each index has the same GID. Scripts name the index of RoCE v2 over IPv4 on most RDMA NICs: -x 3.
inline constexpr int kGids = 4;
inline constexpr unsigned kChangesMemory = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// A listed device: a network interface, with a software NIC in each process that opens it.
class Device : public ibv_device {
 public:
  Result<std::shared_ptr<ProcessNic>> open();  // Errors: of the NIC.
  // As of the last listing of devices, which any thread may start at any time.
  InterfaceInfo interface() const {
    const std::lock_guard lock(mutex_);
    return interface_;
  }
  void set_interface(const InterfaceInfo& now) {
    const std::lock_guard lock(mutex_);
    interface_ = now;
  }

 private:
  mutable std::mutex mutex_;
  InterfaceInfo interface_;
  std::mutex opening_;
  std::weak_ptr<ProcessNic> nic_;  // while a context is open
};

std::vector<ibv_device*> own_devices();  // The devices that PACECAR_NICS selects.

bool ours(const ibv_device* device);  // Whether a device, or an object of a device, is one of ours.
inline bool ours(const ibv_context* context) { return ours(context->device); }
template <typename Object>
bool ours(const Object* object) {
  return ours(object->context);
}

struct Context {
  verbs_context verbs{};
  std::shared_ptr<ProcessNic> nic;
  EventPipe<ibv_async_event> async;

  ibv_context* base() { return &verbs.context; }
  Device& device() { return *static_cast<Device*>(verbs.context.device); }
};
// `verbs` is the first member.
inline Context& context_of(ibv_context* context) {
  return *reinterpret_cast<Context*>(verbs_get_ctx(context));
}
inline ProcessNic& nic_of(ibv_context* context) { return *context_of(context).nic; }
// Set calls of our contexts (ibv_context_ops and verbs_context).
void set_completion_calls(verbs_context& verbs);
void set_window_calls(verbs_context& verbs);
void set_queue_pair_calls(verbs_context& verbs);
void set_receive_calls(verbs_context& verbs);

// The scope of a program's call: holds the NIC's lock, and calls note_call() at the end.
class Call {
 public:
  explicit Call(ProcessNic& nic) : nic_(nic) { nic_.mutex().lock(); }
  ~Call() {
    nic_.mutex().unlock();
    nic_.note_call();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  ProcessNic& nic_;
};

struct Pd : ibv_pd {
  Pd();
  const DomainId domain;
  std::atomic<uint32_t> users = 0;
};

// A registered region; ProcessNic::regions() finds it by its local key.
struct Region : ibv_mr {
  MemoryRegion region;
  uint64_t iova = 0;     // address of the first byte in work requests
  unsigned access = 0;   // ibv_access_flags
  uint32_t windows = 0;  // bound to it
};

struct AddressHandle : ibv_ah {
  std::array<uint8_t, 16> gid{};
};

struct CompletionQueue;
struct CompletionChannel : ibv_comp_channel {
  EventPipe<CompletionQueue*> pipe;
};
// The number of its completion queues, which any thread creates and destroys.
inline std::atomic_ref<int> users_of(ibv_comp_channel& channel) {
  return std::atomic_ref(channel.refcnt);
}

struct CompletionQueue final : ibv_cq_ex, Timed {
  explicit CompletionQueue(int entries) : ibv_cq_ex{}, queue(static_cast<size_t>(entries)) {}

  ibv_cq* base() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }
  ProcessNic& nic() { return nic_of(context); }
  // Adds a completion; `wanted`: it also notifies threads that wait for solicited ones only.
  void add(const ibv_wc& wc, bool solicited);
  // The oldest completion; there is one.
  ibv_wc take() {
    const ibv_wc oldest = queue.front();
    queue.pop_front();
    return oldest;
  }
  // Drops the completions of a queue pair.
  void forget(uint32_t qp_num) {
    queue.erase_if([&](const ibv_wc& wc) { return wc.qp_num == qp_num; });
  }
  void notify();
  Instant due() const override { return moderated_until; }
  void on_due(Instant now) override;

  FixedQueue<ibv_wc> queue;
  uint32_t users = 0;
  uint32_t empty_polls = 0;
  bool overrun = false;
  // Armed for the next completion, or for the next solicited one; it raises one event.
  bool armed = false;
  bool solicited_only = false;
  // Events in a pipe or read; verbs.h counts the acknowledged ones.
  uint32_t completion_events = 0;
  uint32_t async_events = 0;
  // Moderation: an event after this many completions, or this time after the first one.
  uint16_t moderate_count = 0;
  Duration moderate_period;
  uint32_t held_back = 0;
  Instant moderated_until = Instant::never();
  std::mutex polling;  // from ibv_start_poll to ibv_end_poll
  ibv_wc current{};    // between them
  uint64_t current_time_ns = 0;
};

inline CompletionQueue& queue_of(ibv_cq* cq) {
  return *static_cast<CompletionQueue*>(reinterpret_cast<ibv_cq_ex*>(cq));
}
inline CompletionQueue& queue_of(ibv_cq_ex* cq) { return *static_cast<CompletionQueue*>(cq); }

// The sender's address, from the 40 bytes of GRH before a datagram.
std::array<uint8_t, 16> sender_of(const ibv_grh& grh);

Access access_of(unsigned flags);  // Rights by ibv_access_flags.

int error_number(const Error& error);  // errno values, as verbs functions return them.

// For the log: why a call fails whose caller learns no more than an errno. Returns EINVAL.
int refused(std::string_view why);

// The results of calls that fail; they set errno.
inline std::nullptr_t no_object(int error) {
  errno = error;
  return nullptr;
}
inline int failed(int error) {
  errno = error;
  return -1;
}

// A forked child shares its parent's sockets: its calls fail, with one line in the log, but those
// that release an object, which do nothing.
inline bool inherited(const ibv_device*) { return false; }
inline bool inherited(ibv_context* context) { return nic_of(context).inherited(); }
template <typename Object>
bool inherited(const Object* object) {
  return inherited(object->context);
}
int error_in_child(std::string_view call);  // The errno of such a call; 0: it releases.
template <typename Value>
Value result_in_child(std::string_view call) {
  errno = error_in_child(call);
  if constexpr (std::is_integral_v<Value>) return static_cast<Value>(errno);
  if constexpr (std::is_pointer_v<Value>) return nullptr;
}
// A call of a table, with the same check.
template <auto call>
struct Checked;
template <typename Value, typename Object, typename... Others, Value (*call)(Object*, Others...)>
struct Checked<call> {
  static Value run(Object* object, Others... others) {
    return inherited(object) ? result_in_child<Value>("a call") : call(object, others...);
  }
};

// Runs `make`, which returns an object; null with errno if memory is short.
template <typename Make>
auto made(Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return no_object(ENOMEM);
  } catch (const std::system_error& error) {  // such as no thread
    std::fprintf(stderr, "pacecar: %s\n", error.what());
    return no_object(error.code().value());
  }
}

}  // namespace pacecar::ibverbs
