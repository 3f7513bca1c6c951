// The control sockets of net_memif, by the name in its argument "socket". The driver hides them,
// and DPDK 22.11 has two faults around them that end a process:
//
// - A connection whose client has gone before the server greets it is closed and stays on the list
//   of what the EAL's interrupt thread waits for; the thread then panics. So clients are patient.
// - A server's listener stays open and on that list when its device is closed, and refers to memory
//   that is free. So it is retired.
//
// By the first fault anyone who may connect to a server can crash it. So its file is accessible to
// its user alone, and abstract names, to which everybody on the host may connect, cause a warning.
#pragma once

#include <string>
#include <string_view>

namespace pacecar {

// Removes the file of a socket without a listener: a killed server leaves it, and its successor
// could not listen there.
void remove_dead_memif_socket(const std::string& path);

// Once a server listens at this file.
void keep_memif_socket_private(const std::string& path);

// Whether a client of this process has a connection to the server, greeted or not.
bool memif_client_is_connected(std::string_view socket);

// On the EAL's interrupt thread, after the last device with this socket has been closed. Waiting
// clients are rejected. A descriptor remains in use.
void retire_memif_listener(std::string_view socket);

}  // namespace pacecar
