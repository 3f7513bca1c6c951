#include "transport/state/state_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "transport/base/to_number.h"

namespace pacecar {
namespace {

constexpr std::string_view kSuffix = ".sock";
constexpr int kMaxOfAProcess = 64;
constexpr int kBacklog = 8;
// A socket is bound before it listens, so a younger one that refuses is not stale yet.
constexpr time_t kStaleAfterSeconds = 10;

tl::unexpected<Error> system_error(std::string_view what) {
  return fail(ErrorCode::kSystem, fmt::format("{} ({}): name a directory of your own in "
                                              "PACECAR_STATE_DIR, or none",
                                              what, std::strerror(errno)));
}

tl::unexpected<Error> not_ours(const std::string& path) {
  return fail(ErrorCode::kPermission,
              path + " is another user's, or open to others: remove it, or chmod 700 it");
}

// A path through the directory's descriptor: short, and in the checked directory even if its path
// was replaced.
std::string path_in(const FileDescriptor& directory, const std::string& name) {
  return fmt::format("/proc/self/fd/{}/{}", directory.get(), name);
}

sockaddr_un address_in(const FileDescriptor& directory, const std::string& name) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path_in(directory, name).copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

const sockaddr* any(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

FileDescriptor stream_socket(int flags) {
  return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

// No process listens under the name.
bool stale(const FileDescriptor& directory, const std::string& name) {
  struct stat information {};
  if (fstatat(directory.get(), name.c_str(), &information, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISSOCK(information.st_mode) ||
      time(nullptr) - information.st_mtim.tv_sec < kStaleAfterSeconds) {
    return false;
  }
  const FileDescriptor socket = stream_socket(SOCK_NONBLOCK);
  const sockaddr_un address = address_in(directory, name);
  return socket && ::connect(socket.get(), any(address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

// Empty: none, or it belongs to another user, as after sudo.
std::string runtime_folder() {
  const char* const path = std::getenv("XDG_RUNTIME_DIR");
  struct stat information {};
  const bool ours = path != nullptr && *path == '/' && lstat(path, &information) == 0 &&
                    S_ISDIR(information.st_mode) && information.st_uid == geteuid();
  return ours ? path : "";
}

std::string shared_name(const std::string& shared) {
  return fmt::format("{}/pacecar-{}", shared, geteuid());
}

}  // namespace

std::vector<std::string> usual_state_directories(const std::string& shared) {
  // A shell may have another $XDG_RUNTIME_DIR than the job, or none.
  std::vector<std::string> paths = {fmt::format("/run/user/{}/pacecar", geteuid()),
                                    shared_name(shared)};
  if (const std::string runtime = runtime_folder(); !runtime.empty()) {
    paths.push_back(runtime + "/pacecar");
  }
  if (geteuid() == 0) {
    for (const std::string& pattern : {std::string("/run/user/*/pacecar"), shared + "/pacecar-*"}) {
      const auto found = matches(pattern);
      paths.insert(paths.end(), found.begin(), found.end());
    }
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::optional<pid_t> pid_of_socket(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const size_t dash = std::min(name.find('-'), name.size());
  const auto pid = to_number<pid_t>(name.substr(0, dash));
  const bool numbered =
      to_number<unsigned>(name.substr(std::min(dash + 1, name.size()))).has_value();
  return pid && *pid > 0 && numbered ? pid : std::nullopt;
}

Result<StateDirectory> StateDirectory::make(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return system_error("cannot make " + path);
  }
  auto directory = find(path);
  if (directory && directory->owner_ != geteuid()) return not_ours(path);
  return directory;
}

Result<StateDirectory> StateDirectory::make_usual(const std::string& shared) {
  if (const std::string runtime = runtime_folder(); !runtime.empty()) {
    if (auto directory = make(runtime + "/pacecar")) return directory;
  }
  return make(shared_name(shared));
}

Result<StateDirectory> StateDirectory::find(const std::string& path) {
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat information {};
  if (!directory && errno == ENOENT) return fail(ErrorCode::kNotFound, path + " is not there");
  if (!directory || fstat(directory.get(), &information) != 0) {
    return system_error("cannot open the directory " + path);
  }
  const bool ours = information.st_uid == geteuid() || geteuid() == 0;
  if (!ours || (information.st_mode & (S_IRWXG | S_IRWXO)) != 0) return not_ours(path);
  return StateDirectory(path, std::move(directory), information.st_uid);
}

Result<StateDirectory::Listening> StateDirectory::listen() const {
  Listening listening{stream_socket(SOCK_NONBLOCK), {}};
  if (!listening.socket) return system_error("cannot make a UNIX socket");
  for (int number = 0; number < kMaxOfAProcess; ++number) {
    listening.name = fmt::format("{}-{}{}", getpid(), number, kSuffix);
    const sockaddr_un address = address_in(directory_, listening.name);
    if (bind(listening.socket.get(), any(address), sizeof address) == 0) {
      if (fchmodat(directory_.get(), listening.name.c_str(), S_IRUSR | S_IWUSR, 0) == 0 &&
          ::listen(listening.socket.get(), kBacklog) == 0) {
        return listening;
      }
      remove(listening.name);
      break;
    }
    if (errno != EADDRINUSE) break;
  }
  return system_error("cannot listen in " + path_);
}

void StateDirectory::remove(const std::string& name) const {
  unlinkat(directory_.get(), name.c_str(), 0);
}

void StateDirectory::remove_stale() const {
  for (const std::string& name : sockets()) {
    if (stale(directory_, name)) remove(name);
  }
}

std::vector<std::string> StateDirectory::sockets() const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(path_in(directory_, "."), error);
  for (; !error && entry != end(entry) && names.size() < kMaxSockets; entry.increment(error)) {
    std::string name = entry->path().filename();
    if (pid_of_socket(name)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

Result<std::optional<FileDescriptor>> StateDirectory::connect(const std::string& name) const {
  FileDescriptor socket = stream_socket(SOCK_NONBLOCK);
  if (!socket) return system_error("cannot make a UNIX socket");
  const sockaddr_un address = address_in(directory_, name);
  if (::connect(socket.get(), any(address), sizeof address) != 0) {
    if (errno == EAGAIN) return std::nullopt;
    return fail(ErrorCode::kNotFound, fmt::format("nobody listens on {}/{}", path_, name));
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != owner_) {
    return fail(ErrorCode::kPermission,
                fmt::format("{}/{} is not served by the directory's owner", path_, name));
  }
  return socket;
}

}  // namespace pacecar
