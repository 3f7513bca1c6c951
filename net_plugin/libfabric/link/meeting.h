// Where endpoints find each other: a TCP listener, and calls to those of others. Both sides say who
// they are, over which Pacecar listener they are reached, and with which token. The socket stays
// open: when it ends, the peer has.
//
// Strangers are dropped: who says nothing for kPatience, no greeting, or the name of another host.
// Never blocks. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "net_plugin/libfabric/core/names.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/file_descriptor.h"

namespace pacecar::fabric {

using Token = std::array<uint64_t, 2>;

// As it goes over the socket, in the byte order of the hosts.
struct Greeting {
  static constexpr uint64_t kMagic = 0x3130694672636350;  // "PccrFi01"
  uint64_t magic = kMagic;
  uint64_t instance = 0;  // of the endpoint: another one may come to have its name
  Token token{};          // what the called one says first over the connection that it makes
  std::array<char, 28> name{};
  uint32_t name_size = 0;
  Handle listener;  // of Pacecar's
};
static_assert(sizeof(Greeting) == 192 && std::is_trivially_copyable_v<Greeting>);

class Meeting {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kPatience = std::chrono::seconds(10);
  static constexpr size_t kMostUnknown = 1024;  // callers that have not greeted

  using CallId = uint64_t;
  struct Event {
    enum class Kind : uint8_t { kCalled, kAnswered, kFailed, kLost };
    Kind kind = Kind::kLost;
    CallId call = 0;
    Greeting greeting;  // kCalled, which wants answer(), and kAnswered
    Name name;          // of these: who it is
    int error = 0;      // kFailed: why, as errno
  };

  // Listens at `address`; port 0: any. Errors: kSystem, as the socket says.
  static Result<std::unique_ptr<Meeting>> open(const Name& address);

  // Where it listens.
  const Name& address() const { return address_; }
  // Calls a peer, from our address.
  CallId call(const Name& peer, const Name& from, const Greeting& ours);
  void answer(CallId call, const Greeting& ours);
  void end(CallId call) { calls_.erase(call); }
  // What has happened since; cheap where nothing has.
  std::vector<Event> poll();

 private:
  struct Call {
    FileDescriptor socket;
    bool ours = false;       // we have called
    bool connected = false;  // or failed
    bool greeted = false;
    Name from;  // of a caller: the address of his socket
    Greeting outgoing;
    std::array<char, sizeof(Greeting)> incoming{};
    size_t received = 0;
    Clock::time_point begun;
  };

  explicit Meeting(FileDescriptor events, FileDescriptor listener, Name address)
      : events_(std::move(events)), listener_(std::move(listener)), address_(std::move(address)) {}
  void accept();
  void look_at(CallId id, std::vector<Event>& events);
  bool receive(Call& call);
  void give_up_silent(std::vector<Event>& events);
  CallId add(Call call, uint32_t wanted);

  FileDescriptor events_;
  FileDescriptor listener_;
  Name address_;
  std::map<CallId, Call> calls_;
  CallId next_ = 1;
  size_t unknown_ = 0;
  std::vector<Event> failed_at_once_;
};

}  // namespace pacecar::fabric
