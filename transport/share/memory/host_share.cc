#include "transport/share/memory/host_share.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr int kVersion = 3;  // of the table and of its locks
constexpr size_t kLongestName = 64;
// Access rights of others, which directory and file must not have.
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

tl::unexpected<Error> system_error(std::string_view what, std::string_view cure) {
  return fail(ErrorCode::kSystem, fmt::format("{} ({}): {}", what, std::strerror(errno), cure));
}

tl::unexpected<Error> not_ours(const std::string& path) {
  return fail(ErrorCode::kPermission,
              path +
                  " is another user's, or open to others: let its owner remove it or chmod go= it, "
                  "or set PACECAR_SHARE=off");
}

bool ours(const struct stat& information) {
  return information.st_uid == geteuid() && (information.st_mode & kOthers) == 0;
}

Result<FileDescriptor> open_directory(const std::string& path, bool make) {
  if (make && mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return system_error("cannot make " + path, "mount a tmpfs there that you may write to");
  }
  FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOENT) return fail(ErrorCode::kNotFound, path + " is not there");
  if (!directory && errno == EACCES) return not_ours(path);
  struct stat information {};
  struct statfs file_system {};
  if (!directory || fstat(directory.get(), &information) != 0 ||
      fstatfs(directory.get(), &file_system) != 0) {
    return system_error("cannot open the directory " + path, "remove what is there");
  }
  if (!ours(information)) return not_ours(path);
  if (file_system.f_type != TMPFS_MAGIC && file_system.f_type != RAMFS_MAGIC) {
    return fail(ErrorCode::kSystem, path + " is not in memory: mount a tmpfs at /dev/shm");
  }
  return directory;
}

// 0 if the kernel has no such namespace.
uint64_t name_space(const char* path) {
  struct stat information {};
  return stat(path, &information) == 0 ? information.st_ino : 0;
}

std::string file_name(std::string_view link) {
  std::string name = fmt::format("link{}-{}-{}-", kVersion, name_space("/proc/self/ns/net"),
                                 name_space("/proc/self/ns/time"));
  for (const char letter : link.substr(0, kLongestName)) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool plain = std::isalnum(byte) != 0 || letter == '.' || letter == '_' || letter == '-';
    name += plain ? std::string(1, letter) : fmt::format("%{:02x}", byte);
  }
  return name;
}

// The table's file, locked as used; a mapping of it keeps the lock.
Result<FileDescriptor> open_used(const FileDescriptor& folder, const std::string& name,
                                 const std::string& path) {
  for (;;) {
    // O_NONBLOCK: a FIFO of that name would block us.
    FileDescriptor file(openat(folder.get(), name.c_str(),
                               O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                               S_IRUSR | S_IWUSR));
    struct stat information {};
    if (!file || flock(file.get(), LOCK_SH) != 0 || fstat(file.get(), &information) != 0) {
      if (errno == EINTR) continue;
      return system_error("cannot open " + path, "remove it");
    }
    if (information.st_nlink == 0) continue;  // remove_unused was faster
    if (!ours(information)) return not_ours(path);
    // The first process, or the next after one that was killed here, allocates the file.
    if (S_ISREG(information.st_mode) && information.st_size == 0) {
      if (const int error = posix_fallocate(file.get(), 0, sizeof(ShareTable)); error != 0) {
        errno = error;
        return system_error("no memory for " + path, "make room in /dev/shm");
      }
    }
    return file;
  }
}

// Removes the tables of this version that no process has mapped. Only the holder of the exclusive
// lock removes the name of a file, so a file that has one has its own.
void remove_unused(const FileDescriptor& folder, std::string_view version) {
  std::error_code error;
  std::filesystem::directory_iterator entry(fmt::format("/proc/self/fd/{}", folder.get()), error);
  for (; !error && entry != end(entry); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(version)) continue;
    const FileDescriptor file(
        openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat information {};
    const bool unused = file && flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    if (unused && fstat(file.get(), &information) == 0 && information.st_nlink > 0 &&
        ours(information)) {
      unlinkat(folder.get(), name.c_str(), 0);
    }
  }
}

Result<ShareMemory> map_table(const FileDescriptor& file, int protection, const std::string& path) {
  struct stat information {};
  if (fstat(file.get(), &information) != 0) return system_error("cannot see " + path, "remove it");
  if (!ours(information)) return not_ours(path);
  if (!S_ISREG(information.st_mode) || information.st_size != sizeof(ShareTable)) {
    return fail(ErrorCode::kInvalidArgument, path + " is no table of links: remove it");
  }
  void* const memory = mmap(nullptr, sizeof(ShareTable), protection, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return system_error("cannot map " + path, "raise ulimit -v");
  return ShareMemory(static_cast<ShareTable*>(memory));
}

}  // namespace

std::string link_name(std::string_view device, uint64_t guid) {
  return fmt::format("{}-{:016x}", device, guid);
}

Result<std::unique_ptr<HostShare>> HostShare::open(std::string_view link, Rate capacity,
                                                   Instant now, const std::string& directory) {
  ASSIGN_OR_RETURN(auto process, LiveProcess::make());
  ASSIGN_OR_RETURN(auto memory, open_share_memory(directory, link));
  std::unique_ptr<HostShare> share(new HostShare(std::move(memory), std::move(process), capacity));
  if (!share->member_.join(now)) {
    return fail(ErrorCode::kUnavailable,
                "all its slots are in use: run fewer processes on one NIC");
  }
  return share;
}

HostShare::HostShare(ShareMemory memory, std::unique_ptr<LiveProcess> process, Rate capacity)
    : memory_(std::move(memory)),
      process_(std::move(process)),
      member_(*memory_, *process_, program_invocation_short_name, capacity) {}

Result<std::vector<LinkSharer>> link_sharers(std::string_view link, Instant now,
                                             const std::string& directory) {
  ASSIGN_OR_RETURN(const auto self, LiveProcess::make());
  ASSIGN_OR_RETURN(const auto memory, find_share_memory(directory, link));
  std::vector<LinkSharer> sharers;
  for (const ShareTable::Slot& slot : memory->slots) {
    const uint64_t owner = slot.owner.load();
    if (owner == 0 || self->ended(owner)) continue;
    LinkSharer& sharer = sharers.emplace_back();
    sharer.process = OwnerWord::decode(owner).process;
    sharer.hidden = self->hidden(owner);
    std::array<char, sizeof slot.name> name{};
    for (size_t i = 0; i < slot.name.size(); ++i) {
      const uint64_t letters = slot.name[i].load();
      std::memcpy(name.data() + i * sizeof letters, &letters, sizeof letters);
    }
    sharer.program = printable(std::string_view(name.data(), strnlen(name.data(), name.size())));
    for (size_t i = 0; i < slot.directions.size(); ++i) {
      const auto& direction = slot.directions[i];
      sharer.directions[i] = {.claim = ClaimWord::decode(direction.claim.load()),
                              .taking = Rate::from_bps(direction.taking.load()),
                              .learnt = Rate::from_bps(direction.learnt.load()),
                              .lives = share_beat_lives(direction.beat.load(), now)};
      sharer.directions[i].lives &= sharer.directions[i].claim.demand.bps() > 0;
    }
  }
  return sharers;
}

void UnmapTable::operator()(ShareTable* table) const { munmap(table, sizeof *table); }

std::string default_share_directory() { return fmt::format("/dev/shm/pacecar-{}", geteuid()); }

Result<ShareMemory> open_share_memory(const std::string& directory, std::string_view link) {
  ASSIGN_OR_RETURN(const auto folder, open_directory(directory, true));
  const std::string name = file_name(link);
  const std::string path = directory + "/" + name;
  ASSIGN_OR_RETURN(const auto file, open_used(folder, name, path));
  remove_unused(folder, name.substr(0, name.find('-') + 1));
  return map_table(file, PROT_READ | PROT_WRITE, path);
}

Result<ShareMemory> find_share_memory(const std::string& directory, std::string_view link) {
  ASSIGN_OR_RETURN(const auto folder, open_directory(directory, false));
  const std::string name = file_name(link);
  const FileDescriptor file(
      openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return fail(ErrorCode::kNotFound, "no process uses " + directory + "/" + name);
  return map_table(file, PROT_READ, directory + "/" + name);
}

}  // namespace pacecar
