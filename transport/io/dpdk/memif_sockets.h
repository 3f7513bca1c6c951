// The control sockets of net_memif, by the name in its argument "socket". The driver hides them,
// and DPDK 22.11 has two faults around them that end a process:
//
// - A connection whose client has gone before the server greets it is closed and stays on the list
//   of what the EAL's interrupt thread waits for; the thread then panics. So clients are patient.
// - A server's listener stays open and on that list when its device is closed, and refers to memory
//   that is free. So it is put out of use.
//
// By the first of them whoever may connect to a server may end it. So its file is its user's alone,
// and names that are no files, to which everybody on the host may connect, are warned of.
#pragma once

#include <string>
#include <string_view>

namespace pacecar {

// Removes the file of a socket at which nobody listens any more: a server that was killed leaves
// it, and its successor could not listen there.
void remove_dead_memif_socket(const std::string& path);

// Once a server listens at this file.
void keep_memif_socket_private(const std::string& path);

// Whether a client of this process has a connection to the server, greeted or not.
bool memif_client_is_connected(std::string_view socket);

// On the EAL's interrupt thread, after the last device with this socket has been closed. Whoever
// waits there is sent away. A descriptor remains in use, as before.
void retire_memif_listener(std::string_view socket);

}  // namespace pacecar
