// The control sockets of net_memif, by the name in its argument "socket". The driver hides them,
// and DPDK 22.11 has two faults around them that end a process:
//
// - A connection whose client has gone before the server greets it is closed and stays on the list
//   of what the EAL's interrupt thread waits for; the thread then panics. So clients are patient.
// - A server's listener stays open and on that list when its device is closed, and refers to memory
//   that is free. So it is put out of use.
#pragma once

#include <string>
#include <string_view>

namespace pacecar {

// Removes the file of a socket at which nobody listens any more: a server that was killed leaves
// it, and its successor could not listen there.
void remove_dead_memif_socket(const std::string& path);

// Whether a client of this process has a connection to the server, greeted or not.
bool memif_client_is_connected(std::string_view socket);

// On the EAL's interrupt thread, after the last device with this socket has been closed. Whoever
// waits there is sent away. A descriptor remains in use, as before.
void retire_memif_listener(std::string_view socket);

}  // namespace pacecar
