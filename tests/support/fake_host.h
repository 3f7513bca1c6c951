// A folder that looks like the /sys, /proc, /dev and /etc of some host, for preflight. It is
// removed with the object. One thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/preflight/facts.h"
#include "bench/preflight/finding.h"
#include "bench/preflight/host_tree.h"

namespace pacecar::preflight {

class FakeHost {
 public:
  FakeHost();
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;
  ~FakeHost();

  // Writes a file, and the folders above it; replaces an older file.
  FakeHost& file(std::string_view path, std::string_view content);
  // Makes a symbolic link to `target`, a path from the root of the tree.
  FakeHost& link(std::string_view path, std::string_view target);
  FakeHost& folder(std::string_view path);
  FakeHost& remove(std::string_view path);

  HostTree tree() const { return HostTree(root_.string()); }
  const std::filesystem::path& root() const { return root_; }
  // The paths of all regular files, sorted.
  std::vector<std::filesystem::path> files() const;

  Facts facts() const;
  // Runs all checks on the tree.
  Findings findings() const;

 private:
  std::filesystem::path prepare(std::string_view path);

  std::filesystem::path root_;
};

// Two NUMA nodes, a ConnectX (RoCE, mlx5_0, interface eth2) and a GPU under one PCIe switch; with
// correct settings only.
void make_mlx5_host(FakeHost& host);
// mlx5_0 with an InfiniBand port, no GPU.
void make_infiniband_host(FakeHost& host);
// rxe0 on the interface eth0.
void make_rxe_host(FakeHost& host);
// The files of every host above: kernel, limits, CPUs.
void make_plain_host(FakeHost& host);

// A PCIe function's configuration space whose ACS capability has these control bits.
std::string config_with_acs(uint16_t control);

}  // namespace pacecar::preflight
