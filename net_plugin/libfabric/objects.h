// The objects of libfabric's calls: the domain, and objects opened in it. Each derives from
// libfabric's own structure, a pointer to which is the application's handle. Thread rule: any. The
// domain's lock guards all state that changes; every call takes it once.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gdr/gpu_system.h"
#include "net_plugin/libfabric/core/names.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/file_descriptor.h"
#include "transport/base/params.h"
#include "transport/engine/clock.h"
#include "transport/engine/own_process.h"
#include "transport/engine/progress_driver.h"

namespace pacecar::fabric {

class Domain;
class Endpoint;

// A wait object: a descriptor that becomes readable when a completion or an event was added.
class Signal {
 public:
  static bool known(fi_wait_obj wanted) {
    return wanted == FI_WAIT_NONE || wanted == FI_WAIT_UNSPEC || wanted == FI_WAIT_FD ||
           wanted == FI_WAIT_YIELD;
  }
  explicit Signal(fi_wait_obj wanted);

  bool has_descriptor() const { return static_cast<bool>(descriptor_); }
  void raise() const;
  bool clear() const;  // false: nothing was added since the last call
  // fi_control of the object that this is a part of.
  int control(int command, void* argument) const;

 private:
  fi_wait_obj kind_;
  FileDescriptor descriptor_;
};

struct Fabric : fid_fabric {};

// An object opened within a domain; the domain cannot be closed before it.
struct InDomain {
  explicit InDomain(Domain& its_domain);
  ~InDomain();
  InDomain(const InDomain&) = delete;
  InDomain& operator=(const InDomain&) = delete;

  Domain& domain;
  uint32_t users = 0;  // objects that use this one
};

struct EventQueue : fid_eq {
  explicit EventQueue(fi_wait_obj wanted) : signal(wanted) {}
  struct Event {
    uint32_t kind = 0;
    std::vector<uint8_t> bytes;
    int error = 0;  // if not 0, the bytes are an fi_eq_err_entry
  };
  void push(Event event);
  template <typename Entry>
  void add(uint32_t kind, const Entry& entry, int error = 0) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&entry);
    push({kind, {bytes, bytes + sizeof entry}, error});
  }

  OwnMutex mutex;
  std::condition_variable_any arrived;
  std::deque<Event> events;
  Signal signal;
};

// It begins with the fields of every format of completions (fi_cq_format).
struct Completion : fi_cq_err_entry {
  Completion() : fi_cq_err_entry{} {}
  void fail(int error, const std::string& reason) {
    err = error;
    why = reason;
  }

  fi_addr_t source = FI_ADDR_NOTAVAIL;  // the sender, where FI_SOURCE is requested
  std::string why;                      // of an error: text for fi_cq_strerror
};
static_assert(offsetof(fi_cq_err_entry, tag) == offsetof(fi_cq_tagged_entry, tag));

struct CompletionQueue : fid_cq, InDomain {
  CompletionQueue(Domain& its_domain, const fi_cq_attr& attr);

  // With the lock held. An operation may start only while the queue is not full.
  bool full() const { return unread.size() >= size; }
  void add(Completion completion);
  Completion take();

  fi_cq_format format;
  std::deque<Completion> unread;  // by the application; errors among them
  size_t size;
  Signal signal;
  bool woken = false;               // by fi_cq_signal
  bool last_read_nonempty = false;  // the last fi_cq_read returned completions
  Completion error;  // the last one that was read: its text must stay valid until the next
};

struct Counter : fid_cntr, InDomain {
  Counter(Domain& its_domain, fi_wait_obj wanted)
      : fid_cntr{}, InDomain(its_domain), signal(wanted) {}

  void count(bool failed);  // With the lock held.

  std::atomic<uint64_t> value{0};
  std::atomic<uint64_t> errors{0};
  Signal signal;
};

struct AddressVector : fid_av, InDomain {
  explicit AddressVector(Domain& its_domain) : fid_av{}, InDomain(its_domain) {}

  EventQueue* events = nullptr;
  Names names;
  uint64_t version = 0;  // of the names: copies of an older version are stale
};

// Memory that is registered with libfabric. It is registered with a NIC at its first use there.
struct MemoryRegion : fid_mr, InDomain {
  MemoryRegion(Domain& its_domain, const fi_mr_attr& attr);
  ~MemoryRegion();

  // The registration with this NIC. With the lock held. Errors: as register_memory.
  Result<const Memory*> on(size_t nic);
  // The local address of these bytes at a remote address; null: not all are within the region.
  uint8_t* find(uint64_t address, uint64_t length) const;

  uint8_t* base;
  uint64_t length;
  uint64_t access;
  uint64_t first;                       // remote address of its first byte
  std::atomic<uint64_t> guard;          // 0 once it is closed: see Guard in link/same_host.h.
  Counter* counter = nullptr;           // counts remote writes (fi_mr_bind)
  std::unique_ptr<StagedRange> device;  // set for GPU memory
  std::map<size_t, const Memory*> registered;  // by NIC
};

class Domain : public fid_domain {
 public:
  Domain(std::shared_ptr<Context> context, size_t nic, const fi_info& info, const Params& params);
  ~Domain();
  Result<void> make_driver();  // Before the first call of the functions that make progress.

  Context& pacecar() const { return *context_; }
  const std::shared_ptr<Context>& context_of_process() const { return context_; }
  size_t nic() const { return nic_; }
  int mr_mode() const { return mr_mode_; }
  int family() const { return family_; }  // of the addresses of its endpoints
  bool cma() const { return cma_; }       // PACECAR_EXPERT_CMA
  PortRange ports() const { return ports_; }

  // The name of an endpoint. In a link-local one of another host, the scope is not ours.
  Address with_own_scope(Address name) const;

  OwnMutex mutex;

  // With the lock held:
  void progress();  // of all endpoints
  // Called before a thread rests: peers on this host wake it. False: the next turn has work to do.
  bool prepare_to_rest();
  std::vector<Endpoint*> endpoints;
  std::map<uint64_t, MemoryRegion*> regions;  // by key
  uint64_t next_key = 1;

  // Called at each call that makes progress. The keeper works only between such calls.
  void note_call() { driver_->note_call(clock_now()); }
  // Makes progress until done(), with the lock held. False: `timeout_ms` (below 0: none) are over.
  template <typename Done>
  bool wait(Done done, int timeout_ms) {
    const auto begin = Clock::now();
    for (uint32_t round = 0;; ++round) {
      note_call();
      const auto waited = Clock::now() - begin;
      bool rests = false;
      {
        const std::lock_guard lock(mutex);
        if (done()) return true;
        progress();
        if (done()) return true;
        rests = waited > kSpin && prepare_to_rest();
      }
      if (timeout_ms >= 0 && waited >= std::chrono::milliseconds(timeout_ms)) return false;
      if (rests) context_->rest(nic_);
    }
  }
  // From now on the keeper makes progress while the application does not.
  void enable_auto_progress();
  // Until all frames are sent and all peers that have been answered are connected: the application
  // may have its completions, and not call again.
  void progress_while_owed();
  // The application is going to wait for a descriptor: the keeper takes over at once.
  void about_to_block() { driver_->hand_over(); }

  std::atomic<uint32_t> users{0};  // objects that are open within this domain

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kSpin = std::chrono::microseconds(50);

  bool progress_enabled() const { return auto_progress_.load() || owes_progress_.load(); }

  // A separate object, as libfabric's structures have no virtual functions.
  struct Keeper final : Driven {
    explicit Keeper(Domain& its_domain) : domain(its_domain) {}
    Turn take_turn() override;
    bool needed() override;
    void prepare_to_sleep() override;
    bool has_submissions() const override { return domain.progress_enabled() && !rests; }
    void sleep(Instant until, int bell) override;

    Domain& domain;
    bool rests = false;  // progress was wanted when it went to sleep
  };

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const int mr_mode_;
  const int family_;
  const bool cma_;
  const PortRange ports_;

  std::atomic<bool> owes_progress_{false};
  std::atomic<bool> owed_progress_{false};  // since the keeper looked last
  std::atomic<bool> auto_progress_{false};
  Keeper keeper_{*this};
  std::unique_ptr<ProgressDriver> driver_;
};

inline InDomain::InDomain(Domain& its_domain) : domain(its_domain) {
  domain.mutex.check();
  ++domain.users;
}
inline InDomain::~InDomain() { --domain.users; }

// Opened at the first call. Errors: as GpuSystem::open.
Result<std::shared_ptr<GpuSystem>> gpus_of_process();

void log_line(LogLevel level, std::string_view line);
void log_warning(const std::string& line);

// Runs the body of a provider call: exceptions become negative fi_errno numbers.
template <typename Body>
auto guarded(const Body& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  } catch (const std::exception& error) {  // such as no thread
    log_warning(error.what());
    return -FI_EOTHER;
  }
}

template <auto kCall>
struct Safe;
template <typename Result, typename... Arguments, Result (*kCall)(Arguments...)>
struct Safe<kCall> {
  static Result call(Arguments... arguments) noexcept {
    return guarded([&] { return kCall(arguments...); });
  }
};
// The same as a function, for libfabric's tables.
template <auto kCall>
inline constexpr auto safe = &Safe<kCall>::call;

int fi_error(ErrorCode code);  // The (positive) fi_errno of an error code.

int failed(const Error& error);  // Logs the error; returns its negative fi_errno.

// Completes an object that was opened, and gives it to the application. Returns 0.
template <typename Object, typename Handle>
int hand_out(Object* made, size_t fclass, fi_ops* object_calls, decltype(Handle::ops) calls,
             void* context, Handle** out) {
  made->fid = {.fclass = fclass, .context = context, .ops = object_calls};
  made->ops = calls;
  *out = made;
  return 0;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);
int open_event_queue(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** queue, void* context);
int open_completion_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** queue, void* context);
int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** counter, void* context);
int open_address_vector(fid_domain* domain, fi_av_attr* attr, fid_av** vector, void* context);
int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);
extern fi_ops_mr memory_calls;
int query_atomic(fid_domain* domain, fi_datatype datatype, fi_op op, fi_atomic_attr* attr,
                 uint64_t flags);
int try_wait(fid_fabric* fabric, fid** waited, int count);

// As a socket address. `bytes`: the room; then the size of the address. False: it does not fit.
bool copy_address(const Address& address, void* to, size_t* bytes);

// Text for an application: copied into its buffer if there is one.
inline const char* copied_text(const char* text, char* buffer, size_t length) {
  if (buffer == nullptr || length == 0) return text;
  std::strncpy(buffer, text, length - 1);
  buffer[length - 1] = 0;
  return buffer;
}

// For calls that an object does not support.
template <typename Result, typename... Arguments>
Result unsupported(Arguments... /*arguments*/) {
  return -FI_ENOSYS;
}

// The calls that all kinds of objects have.
constexpr fi_ops object_calls(int (*close)(fid*), int (*control)(fid*, int, void*) = unsupported,
                              int (*bind)(fid*, fid*, uint64_t) = unsupported) {
  return {.size = sizeof(fi_ops),
          .close = close,
          .bind = bind,
          .control = control,
          .ops_open = unsupported};
}

template <typename Object>
int close_object(fid* object) {
  return guarded([&] {
    delete reinterpret_cast<Object*>(object);
    return 0;
  });
}
// Closes an object within a domain. -FI_EBUSY: other objects still use it.
template <typename Object>
int close_unused(fid* object) {
  if (reinterpret_cast<Object*>(object)->users > 0) return -FI_EBUSY;
  return close_object<Object>(object);
}

template <typename Object>
int control_signal(fid* object, int command, void* argument) {
  return reinterpret_cast<const Object*>(object)->signal.control(command, argument);
}

}  // namespace pacecar::fabric
