// Rules of loading, properties and connections.
#include <dirent.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <future>
#include <set>

#include "bench/check/host.h"
#include "bench/check/rule.h"

namespace pacecar::check {
namespace {

using nccl::NetPropertiesV12;

constexpr size_t kConnections = 32;
constexpr int kReopened = 50;
constexpr int kFewDescriptors = 4;

void initialises(Host& host) {
  host.start();
  expect(host.net().name != nullptr && *host.net().name != '\0', "its name is empty");
  host.finalize();
  host.start();  // NCCL makes communicators one after another
}

void holds_two_communicators(Host& host) {
  if (host.net().version < 11) throw NotOffered("versions before 11 know no communicators");
  host.start();
  void* const other = host.another_context();
  host.close(host.connect_self());
  expect_success(host.net().finalize(other), "finalize of one of two communicators");
  host.close(host.connect_self());
}

void finalizes_nothing(Host& host) {
  if (host.net().version < 11) throw NotOffered("its version has no finalize");
  expect_success(host.net().finalize(nullptr), "finalize after an init that failed (NULL)");
}

bool same(const NetPropertiesV12& a, const NetPropertiesV12& b) {
  return a.pointer_support == b.pointer_support && a.guid == b.guid && a.speed == b.speed &&
         a.port == b.port && std::memcmp(&a.latency, &b.latency, sizeof a.latency) == 0 &&
         a.max_connections == b.max_connections && a.max_receives == b.max_receives &&
         a.registration_is_global == b.registration_is_global && a.force_flush == b.force_flush &&
         a.device_type == b.device_type && a.device_version == b.device_version &&
         a.virtual_device.count == b.virtual_device.count && a.max_p2p_bytes == b.max_p2p_bytes &&
         a.max_collective_bytes == b.max_collective_bytes &&
         a.max_multi_request_size == b.max_multi_request_size && a.rail == b.rail &&
         a.plane == b.plane && a.pci_path == b.pci_path;
}

// NCCL does not initialise the structure: a property that the plugin does not write is garbage.
void fills_properties(Host& host) {
  host.start();
  NetPropertiesV12 ones, twos;
  std::memset(static_cast<void*>(&ones), 0x11, sizeof ones);
  std::memset(static_cast<void*>(&twos), 0x22, sizeof twos);
  expect_success(host.net().getProperties(host.device(), &ones), "getProperties");
  expect_success(host.net().getProperties(host.device(), &twos), "getProperties");
  expect(same(ones, twos), "some property keeps what the caller's memory held");
}

void properties_make_sense(Host& host) {
  host.start();
  const NetPropertiesV12 own = host.properties(host.device());
  expect(own.name != nullptr && *own.name != '\0', "its device has no name");
  expect(own.max_connections > 0, "maxComms is not positive");
  expect(own.max_receives >= 1 && own.max_receives <= 8, "maxRecvs is not 1 to 8");
  expect((own.pointer_support & nccl::kPointerHost) != 0, "host memory is not supported");
  expect(own.max_p2p_bytes >= 1 && own.max_p2p_bytes <= nccl::kMaxTransferBytes,
         "maxP2pBytes is not 1 B to 1 TiB");
  expect(own.virtual_device.count >= 1, "vProps names no device, not even itself");
  const std::string speed =
      own.speed > 0 ? fmt::format("{} Mb/s", own.speed) : "no speed: NCCL takes it for 10 Gb/s";
  host.note(fmt::format("{}, {}, maxComms {}, maxRecvs {}", own.name, speed, own.max_connections,
                        own.max_receives));
}

void names_devices_apart(Host& host) {
  host.start();
  const int count = host.device_count();
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) names.insert(host.properties(i).name);
  expect(names.size() == static_cast<size_t>(count), "two devices have the same name");
  host.note(fmt::format("{} devices", count));
}

void writes_a_handle_only(Host& host) {
  host.start();
  host.close_listen(host.listen().comm);
}

// One thread polls connect and accept in turn. A call that blocks never returns.
void does_not_block(Host& host) {
  host.start();
  Listening listening = host.listen();
  Ends ends;
  for (int i = 0; i < 1000 && ends.send == nullptr; ++i) {
    ends.send = host.try_connect(listening.handle);
  }
  poll_until("both ends", [&] { return host.try_both(listening.handle, listening.comm, &ends); });
  host.close_listen(listening.comm);
  host.close(ends);
}

void expect_works(const Host& host, const Ends& ends, uint64_t number) {
  expect(Loop(host, ends, 10'000).carries(number), "a connection delivers bytes of another one");
}

void connects_many(Host& host) {
  host.start();
  const int most = host.properties(host.device()).max_connections;
  const size_t count = std::min(kConnections, static_cast<size_t>(most));
  std::vector<Listening> listening(count);
  std::vector<Ends> ends(count);
  for (Listening& one : listening) one = host.listen();
  poll_until("all connections", [&] {
    size_t ready = 0;
    for (size_t i = 0; i < count; ++i) {
      ready += host.try_both(listening[i].handle, listening[i].comm, &ends[i]) ? 1 : 0;
    }
    return ready == count;
  });
  host.close_listens(listening);
  for (size_t i = 0; i < count; ++i) expect_works(host, ends[i], i);
  for (size_t i = 0; i < count; ++i) host.close(ends[i]);
}

int open_descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

void gives_everything_back(Host& host) {
  host.start();
  host.close(host.connect_self());
  const int before = open_descriptors();
  for (int i = 0; i < kReopened; ++i) {
    const Ends ends = host.connect_self();
    expect_works(host, ends, static_cast<uint64_t>(i));
    host.close(ends);
  }
  const int more = open_descriptors() - before;
  expect(more <= kFewDescriptors,
         fmt::format("after {} closed connections {} more file descriptors are open", kReopened,
                     more));
}

void registers_from_another_thread(Host& host) {
  constexpr size_t kBytes = 1 << 16;
  host.over_connection(kBytes, [&](const Loop& loop) {
    std::future<void> service = std::async(std::launch::async, [&] {
      for (int i = 0; i < 200; ++i) const Buffer brief(host, loop.ends.send, kBytes);
    });
    for (uint64_t i = 0; i < 200; ++i) {
      expect(loop.carries(i), "bytes are wrong while memory is registered");
    }
    service.get();
  });
}

constexpr Rule kRules[] = {
    {"init", "init succeeds, and again after finalize", initialises},
    {"two-communicators", "a second communicator does not disturb the first",
     holds_two_communicators},
    {"finalize-null", "finalize accepts NULL, after an init that failed", finalizes_nothing},
    {"properties-filled", "every property is written", fills_properties},
    {"properties", "properties are within NCCL's bounds", properties_make_sense},
    {"names", "every device has a name of its own", names_devices_apart},
    {"handle", "a handle has 128 bytes", writes_a_handle_only},
    {"non-blocking", "connect and accept return at once, with NULL until ready", does_not_block},
    {"connections", "many connections at once find their own listeners", connects_many},
    {"reopen", "what is closed gives its file descriptors back", gives_everything_back},
    {"register-race", "memory is registered while another thread sends",
     registers_from_another_thread},
};

}  // namespace

std::span<const Rule> setup_rules() { return kRules; }

}  // namespace pacecar::check
