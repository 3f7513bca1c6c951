#include "transport/share/memory/live_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "transport/base/file_descriptor.h"

namespace pacecar {
namespace {

constexpr uint32_t kProcessBits = 22;  // Linux has at most 2^22 processes
constexpr uint32_t kBits = 21;
constexpr uint32_t kMask = (1U << kBits) - 1;
constexpr size_t kPage = 4096;

struct Life {
  bool there = false;
  bool unknown = false;  // it cannot be read
  pid_t process = 0;
  char state = '?';
  uint64_t start = 0;
};

// proc(5): the name, in parentheses, may hold anything; then the state, and 19 fields on the start.
Life read_life(const char* path) {
  Life life;
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t size = file ? read(file.get(), text.data(), text.size()) : -1;
  if (size <= 0) {
    life.unknown = size < 0 && errno != ENOENT && errno != ESRCH;
    return life;
  }
  const std::string_view stat(text.data(), static_cast<size_t>(size));
  const size_t name_end = stat.rfind(") ");
  life.unknown = name_end == std::string_view::npos;
  if (life.unknown) return life;
  std::from_chars(stat.data(), stat.data() + stat.size(), life.process);
  std::string_view rest = stat.substr(name_end + 2);
  life.there = true;
  life.state = rest.front();
  for (int field = 0; field < 19; ++field) {
    rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
  }
  std::from_chars(rest.data(), rest.data() + rest.size(), life.start);
  return life;
}

}  // namespace

OwnerWord OwnerWord::decode(uint64_t word) {
  return {.process = static_cast<pid_t>(word >> (2 * kBits)),
          .start = static_cast<uint32_t>(word >> kBits) & kMask,
          .process_namespace = static_cast<uint32_t>(word) & kMask};
}

uint64_t OwnerWord::encode() const {
  return (static_cast<uint64_t>(process) & ((1U << kProcessBits) - 1)) << (2 * kBits) |
         uint64_t{start & kMask} << kBits | (process_namespace & kMask);
}

Result<std::unique_ptr<LiveProcess>> LiveProcess::make() {
  const Life life = read_life("/proc/self/stat");
  struct stat process_namespace {};
  if (!life.there || life.process != getpid() ||
      stat("/proc/self/ns/pid", &process_namespace) != 0) {
    return fail(ErrorCode::kSystem,
                "/proc does not show this process: mount the one of its own namespace");
  }
  void* const page =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail(ErrorCode::kSystem, "no memory: raise its limit (ulimit -v)");
  if (madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    munmap(page, kPage);
    return fail(ErrorCode::kSystem,
                "memory cannot be kept from forked children: Linux 4.14 or newer is needed");
  }
  auto* const word = static_cast<uint64_t*>(page);
  *word = OwnerWord{.process = getpid(),
                    .start = static_cast<uint32_t>(life.start),
                    .process_namespace = static_cast<uint32_t>(process_namespace.st_ino)}
              .encode();
  return std::unique_ptr<LiveProcess>(new LiveProcess(word));
}

LiveProcess::~LiveProcess() { munmap(word_, kPage); }

bool LiveProcess::hidden(uint64_t owner) const {
  return OwnerWord::decode(owner).process_namespace != OwnerWord::decode(own_).process_namespace;
}

bool LiveProcess::ended(uint64_t owner) const {
  if (owner == 0 || owner == own_ || hidden(owner)) return false;
  const OwnerWord word = OwnerWord::decode(owner);
  std::array<char, 32> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/stat", word.process);
  const Life life = read_life(path.data());
  if (life.unknown) return false;
  const bool zombie = life.state == 'Z' || life.state == 'X' || life.state == 'x';
  return !life.there || zombie || (life.start & kMask) != word.start;
}

}  // namespace pacecar
