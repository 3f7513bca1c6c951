// The control sockets of net_memif, by the name in its argument "socket". The driver hides them,
// and DPDK 22.11 has two faults with them that end a process:
//
// - If a client leaves before the server greets it, the server closes the connection, but the EAL's
//   interrupt thread still waits for it and panics. So clients wait until they are greeted.
// - When a server's device is closed, its listener stays open, the interrupt thread still waits for
//   it, and it refers to freed memory. So retire_memif_listener() replaces it.
//
// By the first fault anyone who may connect to a server can crash it. So the socket's file is
// accessible to its user alone, and abstract names, to which everybody on the host may connect,
// cause a warning. Thread rule: any thread, unless a function has another.
#pragma once

#include <string>
#include <string_view>

namespace pacecar {

// Removes the file of a socket without a listener: a killed server leaves it, and its successor
// could not listen there.
void remove_dead_memif_socket(const std::string& path);

// Makes the file of a listening server accessible to its user alone.
void keep_memif_socket_private(const std::string& path);

// Whether a client of this process has a connection to the server, greeted or not.
bool memif_client_is_connected(std::string_view socket);

// Call it on the EAL's interrupt thread, after the last device with this socket has been closed.
// Rejects waiting clients. Leaks one descriptor.
void retire_memif_listener(std::string_view socket);

}  // namespace pacecar
