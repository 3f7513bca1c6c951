// What libfabric's calls work on: the domain, and what is opened within it. Each begins with
// libfabric's own structure, through which the application holds it.
//
// Thread rule: any thread; whatever changes is guarded by the domain's lock, which every call takes
// once. Functions that say so are called with the lock held.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gdr/gpu_system.h"
#include "net_plugin/libfabric/core/completions.h"
#include "net_plugin/libfabric/core/names.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/file_descriptor.h"

namespace pacecar::fabric {

class Domain;
class Endpoint;

// What an application waits for: a descriptor that can be read when something has happened.
class Signal {
 public:
  // Whether `wanted` is a kind that there is.
  static bool known(fi_wait_obj wanted) {
    return wanted == FI_WAIT_NONE || wanted == FI_WAIT_UNSPEC || wanted == FI_WAIT_FD ||
           wanted == FI_WAIT_YIELD;
  }
  explicit Signal(fi_wait_obj wanted);

  fi_wait_obj kind() const { return kind_; }
  bool has_descriptor() const { return static_cast<bool>(descriptor_); }
  int descriptor() const { return descriptor_.get(); }
  void raise() const;
  void clear() const;
  // fi_control of the object that has it.
  int control(int command, void* argument) const;

 private:
  fi_wait_obj kind_;
  FileDescriptor descriptor_;
};

struct Fabric : fid_fabric {};

struct EventQueue : fid_eq {
  explicit EventQueue(fi_wait_obj wanted) : signal(wanted) {}
  struct Event {
    uint32_t kind = 0;
    std::vector<uint8_t> bytes;
    int error = 0;  // else the bytes are an fi_eq_err_entry's
  };
  void add(uint32_t kind, const fi_eq_entry& entry);
  void add_error(const fi_eq_err_entry& entry);

  std::mutex mutex;
  std::condition_variable came;
  std::deque<Event> events;
  Signal signal;
};

struct CompletionQueue : fid_cq {
  CompletionQueue(Domain& its_domain, const fi_cq_attr& attr);

  // With the lock held.
  void add(Completion completion);

  Domain& domain;
  fi_cq_format format;
  Completions waiting;
  Signal signal;
  bool woken = false;  // by fi_cq_signal
  bool gave = false;   // the last call has read something
  Completion error;    // that was read last: its text lives until the next is
  uint32_t users = 0;  // endpoints
};

struct Counter : fid_cntr {
  Counter(Domain& its_domain, fi_wait_obj wanted) : domain(its_domain), signal(wanted) {}

  // With the lock held.
  void count(bool failed);

  Domain& domain;
  std::atomic<uint64_t> value{0};
  std::atomic<uint64_t> errors{0};
  Signal signal;
  uint32_t users = 0;
};

struct AddressVector : fid_av {
  explicit AddressVector(Domain& its_domain) : domain(its_domain) {}

  Domain& domain;
  EventQueue* events = nullptr;
  Names names;
  uint64_t version = 0;  // of the names: what was looked up with another one may have changed
  uint32_t users = 0;
};

// Memory that is registered with libfabric; with Pacecar's NICs when one needs it.
struct MemoryRegion : fid_mr {
  MemoryRegion(Domain& its_domain, const fi_mr_attr& attr);
  ~MemoryRegion();

  // With the lock held. Errors: as register_memory.
  Result<const Memory*> on(size_t nic);
  // Where the peer's `address` lies, if all of `length` does and the access is allowed.
  uint8_t* find(uint64_t address, uint64_t length) const;

  Domain& domain;
  uint8_t* base;
  uint64_t length;
  uint64_t access;
  uint64_t first;                              // as peers call its first byte
  Counter* counter = nullptr;                  // of what peers write
  std::unique_ptr<StagedRange> device;         // of a GPU's memory
  std::map<size_t, const Memory*> registered;  // by NIC
};

class Domain : public fid_domain {
 public:
  Domain(std::shared_ptr<Context> context, size_t nic, const fi_info& info);
  ~Domain();

  Context& pacecar() const { return *context_; }
  const std::shared_ptr<Context>& context_of_process() const { return context_; }
  size_t nic() const { return nic_; }
  int mr_mode() const { return mr_mode_; }
  int family() const { return family_; }  // of the addresses of its endpoints

  std::mutex mutex;

  // With the lock held:
  void progress();
  std::vector<Endpoint*> endpoints;
  std::map<uint64_t, MemoryRegion*> regions;  // by key
  uint64_t next_key = 1;

  // An application's call, which makes progress: counts for those who would do it otherwise.
  void called() { calls_.fetch_add(1, std::memory_order_relaxed); }
  // Calls done() with the lock held until it is true, with progress between; false: `timeout_ms`
  // have passed (below 0: never).
  template <typename Done>
  bool wait(Done done, int timeout_ms) {
    const auto begin = Clock::now();
    for (uint32_t round = 0;; ++round) {
      called();
      {
        const std::lock_guard lock(mutex);
        if (done()) return true;
        progress();
        if (done()) return true;
      }
      const auto waited = Clock::now() - begin;
      if (timeout_ms >= 0 && waited >= std::chrono::milliseconds(timeout_ms)) return false;
      if (waited > kSpin) context_->rest(nic_);
    }
  }
  // From now on somebody makes progress while the application does not.
  void keep();
  // The application takes for sent what an endpoint still holds: likewise, until it has left.
  void owe();
  // The application is going to wait for a descriptor.
  void hand_over();

  std::atomic<uint32_t> users{0};  // what was opened within it

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kSpin = std::chrono::microseconds(50);

  bool kept() const { return always_ || owes_.load(std::memory_order_relaxed); }
  void start_keeper();
  void keep_on();

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const int mr_mode_;
  const int family_;

  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> owes_{false};
  std::mutex keeping_;
  std::condition_variable owing_;
  std::condition_variable handed_over_;
  bool always_ = false;
  bool urgent_ = false;
  bool stop_ = false;
  std::thread keeper_;
};

// Opened when it is first asked for. Errors: as GpuSystem::open.
Result<std::shared_ptr<GpuSystem>> gpus_of_process();

// The provider's calls may end with no exception; with fi_errno's negative numbers instead.
template <typename Body>
auto guarded(const Body& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  } catch (...) {
    return -FI_EOTHER;
  }
}

// Errors as libfabric numbers them, positive.
int fi_error(ErrorCode code);

void log_line(LogLevel level, std::string_view line);
void log_warning(const std::string& line);

// The calls that open each kind of object.
int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);
int open_event_queue(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** queue, void* context);
int open_completion_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** queue, void* context);
int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** counter, void* context);
int open_address_vector(fid_domain* domain, fi_av_attr* attr, fid_av** vector, void* context);
int open_poll_set(fid_domain* domain, fi_poll_attr* attr, fid_poll** set);
int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);
fi_ops_mr* memory_calls();
int try_wait(fid_fabric* fabric, fid** waited, int count);

// Of calls that an object does not have.
int no_bind(fid* object, fid* other, uint64_t flags);
int no_control(fid* object, int command, void* argument);
int no_ops_open(fid* object, const char* name, uint64_t flags, void** ops, void* context);

}  // namespace pacecar::fabric
