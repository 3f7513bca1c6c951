// The flags with which a subcommand runs on other hosts, the same for every subcommand
// (bench/hosts).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pacecar::perf {

struct HostsFlags {
  std::string hosts;  // as written; empty: this host
  std::string launch = "ssh";
  std::string remote = "pacecar";
  double reach_s = 30;

  bool given() const { return !hosts.empty(); }
};

// `what`: "measure between these hosts". Returns --hosts, which others may need.
CLI::Option* add_hosts_flags(CLI::App& app, HostsFlags& flags, const std::string& what);

// The flags that the command line has, with their values, but without operands and `omitted`
// ("--json"): arguments for the same subcommand on another host.
std::vector<std::string> given_flags(const CLI::App& app,
                                     const std::vector<std::string_view>& omitted);

// Flags that are not passed on to other hosts.
inline const std::vector<std::string_view> kOwnFlags = {
    "--hosts", "--launch", "--remote", "--reach", "--json", "--quiet", "--no-color"};

}  // namespace pacecar::perf
