// Bootstrap of endpoints over TCP: a listener, and calls to the listeners of other endpoints. The
// two sides exchange greetings: the endpoint's name, its Pacecar listener and a token. The socket
// stays open: when it is closed, the peer has ended. A caller is dropped if it sends no greeting
// within kPatience, an invalid one, or one with the name of another host. Within a host, calls
// between processes of one user may go through a Unix socket: then the kernel says which process is
// at the other end. Never blocks. Thread rule: one thread at a time.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/attended_time.h"
#include "transport/base/file_descriptor.h"
#include "transport/engine/bootstrap/channel.h"
#include "transport/engine/clock.h"
#include "transport/wire/packet.h"

namespace pacecar::fabric {

// A name for another host, which has scopes of its own.
inline Address without_scope(const Address& name) { return {.ip = name.ip, .port = name.port}; }

// As sent over the socket, in the byte order of the hosts.
struct Greeting {
  static constexpr uint64_t kMagic = 0x3330694672636350;  // "PccrFi03"
  uint64_t magic = kMagic;
  uint64_t instance = 0;  // of the endpoint: a later endpoint may have the same name
  Token token{};          // the peer sends it in the first frame (kHello) of its connections to us
  std::array<char, 28> name{};
  uint32_t name_size = 0;
  uint64_t token_address = 0;  // in its sender's process; 0 beyond this host
  Handle listener;             // of Pacecar, for the peer's connections to us

  std::optional<Address> sender() const;  // `name` is a socket address. nullopt: an invalid one.
  void set_name(const Address& of);
};
static_assert(sizeof(Greeting) == 200 && std::is_trivially_copyable_v<Greeting>);

class EndpointBootstrap {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Duration kPatience = Duration::from_s(10);
  static constexpr size_t kMaxUnknown = 1024;  // callers without a greeting yet

  using CallId = uint64_t;
  struct Event {
    enum class Kind : uint8_t { kCalled, kAnswered, kFailed, kLost };
    Kind kind = Kind::kLost;
    CallId call = 0;
    Greeting greeting;        // of kCalled, after which answer() must be called, and of kAnswered
    Address name;             // the peer's name in that greeting
    pid_t process = 0;        // of the sender, from the kernel; 0: on another host, or not known
    FileDescriptor memory{};  // handed over with the greeting; only within a host
    int error = 0;            // kFailed: an errno
  };

  // Listens at `address`; port 0: the first free one of `ports`. Errors: kSystem.
  static Result<std::unique_ptr<EndpointBootstrap>> open(const Address& address,
                                                         PortRange ports = {},
                                                         Duration patience = kPatience);

  // From now on this user's processes of this host call each other through Unix sockets.
  void enable_within_host(const Address& own);

  const Address& address() const { return address_; }
  // Connects to a peer's listener, from our address, and sends `ours`.
  CallId call(const Address& peer, const Address& from, const Greeting& ours);
  void answer(CallId call, const Greeting& given);
  bool is_within_host(CallId call) const;
  // Whether the other side has sent its greeting, and the call is open.
  bool has_greeted(CallId call) const;
  // Hands memory over with our greeting, which is not sent yet. Requires is_within_host().
  void hand_over(CallId call, std::shared_ptr<const FileDescriptor> memory);
  void end(CallId call) { calls_.erase(call); }
  std::vector<Event> poll();  // The events since the last poll; cheap if there are none.
  // Why callers could not be accepted: an errno, once; 0: they could.
  int take_accept_error() { return std::exchange(accept_error_, accept_error_ == 0 ? 0 : -1); }

 private:
  struct Call {
    FileDescriptor socket;
    bool ours = false;       // outgoing
    bool connected = false;  // or failed
    bool greeted = false;
    bool within_host = false;
    pid_t process = 0;  // at the other end, if that is known
    Address from;       // of an incoming call: the address of its socket
    Greeting outgoing;
    std::shared_ptr<const FileDescriptor> outgoing_memory;  // with it
    FileDescriptor incoming_memory{};
    std::array<char, sizeof(Greeting)> incoming{};
    size_t received = 0;
    Duration begun;  // attended_.total() at that time
  };

  EndpointBootstrap(FileDescriptor epoll, bootstrap::Socket listener, Address address,
                    Duration patience)
      : epoll_(std::move(epoll)),
        listener_(std::move(listener)),
        address_(std::move(address)),
        patience_(patience) {}
  void accept(const bootstrap::Socket& listener);
  using Calls = std::map<CallId, Call>;
  Calls::iterator drop(Calls::iterator at, int error);
  void poll_call(CallId id);
  static bool greet(Call& call);
  static bool receive(Call& call);
  static ssize_t receive_some(const Call& call, std::span<char> place, FileDescriptor& memory);
  CallId add(Call call, uint32_t wanted);

  FileDescriptor epoll_;
  bootstrap::Socket listener_;
  bootstrap::Socket listener_within_host_;
  bool calls_within_host_ = false;
  Address address_;
  Calls calls_;
  CallId next_ = 1;
  size_t unknown_ = 0;
  int accept_error_ = 0;  // -1: it has been taken
  const Duration patience_;
  AttendedTime attended_{clock_now(),
                         Duration::from_ms(10)};  // a process that yields has few turns
  std::vector<Event> events_;                     // since the last poll
};

}  // namespace pacecar::fabric
