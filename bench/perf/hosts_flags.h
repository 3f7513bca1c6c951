// The flags with which a subcommand goes to other hosts, the same for all of them; what they mean
// is bench/hosts'.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pacecar::perf {

inline constexpr std::string_view kHostsFlag = "--hosts";

struct HostsFlags {
  std::string hosts;  // as written; empty: this host
  std::string launch = "ssh";
  std::string remote = "pacecar";
  double reach_s = 30;

  bool given() const { return !hosts.empty(); }
};

// `what`: "measure between these hosts". Returns --hosts, which others may need.
CLI::Option* add_hosts_flags(CLI::App& app, HostsFlags& flags, const std::string& what);

// Whether a command line goes to other hosts: asked before anything of it is read.
bool names_hosts(int argc, const char* const* argv);

// What was given on the command line but for `omitted` ("--json"): words that mean the same to the
// same subcommand elsewhere. Operands are left out.
std::vector<std::string> given_flags(const CLI::App& app,
                                     const std::vector<std::string_view>& omitted);

// Flags for this end alone, if a subcommand runs on other hosts.
inline const std::vector<std::string_view> kOwnFlags = {
    "--hosts", "--launch", "--remote", "--reach", "--json", "--quiet", "--no-color"};

}  // namespace pacecar::perf
