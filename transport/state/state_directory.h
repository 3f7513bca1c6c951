// The directory in which the processes of one user serve their state, each on its own UNIX stream
// socket PID-NUMBER.sock. Trust: the directory belongs to that user, is not a symbolic link, and
// nobody else may enter it. So every process reached belongs to that user, as SO_PEERCRED confirms.
// Names are looked up in the checked directory, even if its path is replaced. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar {

// The value of PACECAR_STATE_DIR with which a process serves no state.
inline constexpr std::string_view kNoStateDirectory = "none";

inline constexpr const char* kSharedFolder = "/tmp";

// Where this user's processes may serve their state; for root, the directories of all users.
std::vector<std::string> usual_state_directories(const std::string& shared = kSharedFolder);

// The process id in a socket's name; nullopt for any other name.
std::optional<pid_t> pid_of_socket(std::string_view name);

class StateDirectory {
 public:
  // Makes it if missing. Errors: kPermission (of another user, or open to others), kSystem.
  static Result<StateDirectory> make(const std::string& path);
  // The default directory, made if it is missing: pacecar in $XDG_RUNTIME_DIR, if this user owns
  // that; otherwise pacecar-UID in the shared folder. Errors: as make().
  static Result<StateDirectory> make_usual(const std::string& shared = kSharedFolder);
  // To read from. Errors: kNotFound; kPermission (of another user, if not root; open to others).
  static Result<StateDirectory> find(const std::string& path);

  struct Listening {
    FileDescriptor socket;
    std::string name;
  };
  Result<Listening> listen() const;  // A socket that listens under a new name. Errors: kSystem.
  void remove(const std::string& name) const;
  void remove_stale() const;  // Removes the sockets of processes that were killed.

  // Names of sockets, at most kMaxSockets; some may be stale.
  std::vector<std::string> sockets() const;
  // Does not block: nullopt if the listener's backlog is full. Errors: kNotFound (nobody listens
  // there), kPermission (not the owner), kSystem.
  Result<std::optional<FileDescriptor>> connect(const std::string& name) const;

  const std::string& path() const { return path_; }

  static constexpr size_t kMaxSockets = 4096;

 private:
  StateDirectory(std::string path, FileDescriptor directory, uid_t owner)
      : path_(std::move(path)), directory_(std::move(directory)), owner_(owner) {}

  std::string path_;
  FileDescriptor directory_;
  uid_t owner_;
};

}  // namespace pacecar
