// `pacecar metrics`: what all Pacecar processes of this host count, for Prometheus.
#include <fmt/core.h>
#include <fmt/format.h>
#include <httplib.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/subcommands.h"
#include "bench/metrics/destination.h"
#include "bench/metrics/exporter.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/base/start_thread.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

using namespace metrics;
using cli::Console;

struct Flags {
  std::vector<std::string> listen;  // at most one
  std::string tls_cert;             // PEM files; empty: no TLS
  std::string tls_key;
  std::string tls_client_ca;  // clients show a certificate that it signed; empty: they need none
  bool no_tls = false;
  std::string textfile;
  uint64_t interval_s = 0;
  bool listens = false;
};

// One page is made at a time. The others are for clients that take their time.
constexpr size_t kThreads = 64;
// A client that pauses for longer in its request, or in reading the answer, is disconnected. One
// that sends a byte now and then occupies its thread.
constexpr time_t kClientSeconds = 5;
// For requests under way, when the exporter is to end.
constexpr int kEndingSeconds = 2;
// An idle connection occupies a thread. Prometheus connects again for each scrape, as its usual
// interval is longer.
constexpr time_t kKeepAliveSeconds = 1;
constexpr size_t kMaxRequestBytes = 4096;

constexpr const char* kFrontPage =
    "<!DOCTYPE html><title>pacecar metrics</title><h1>pacecar metrics</h1>"
    "<p><a href=\"/metrics\">Metrics</a></p>\n";

std::unique_ptr<httplib::Server> make_server(const Flags& flags, Exporter& exporter) {
  const char* const ca = flags.tls_client_ca.empty() ? nullptr : flags.tls_client_ca.c_str();
  std::unique_ptr<httplib::Server> server =
      flags.tls_cert.empty()
          ? std::make_unique<httplib::Server>()
          : std::make_unique<httplib::SSLServer>(flags.tls_cert.c_str(), flags.tls_key.c_str(), ca);
  server->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server->set_read_timeout(kClientSeconds);
  server->set_write_timeout(kClientSeconds);
  server->set_keep_alive_timeout(kKeepAliveSeconds);
  server->set_payload_max_length(kMaxRequestBytes);
  // Not SO_REUSEPORT, the library's choice: a second exporter would get half of the clients.
  server->set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server->Get("/metrics", [&exporter](const httplib::Request&, httplib::Response& response) {
    response.set_content(exporter.page().text, kExpositionType);
  });
  server->Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(kFrontPage, "text/html; charset=utf-8");
  });
  return server;
}

// Binds the server to the address. Returns "http://127.0.0.1:18516/metrics". Errors:
// kInvalidArgument (certificate, key), kSystem.
Result<std::string> bind(httplib::Server& server, Address address, const Flags& flags) {
  if (!server.is_valid()) {
    return invalid(
        "cannot use the certificate {} with the key {}{}: all are files of PEM, and the key is the "
        "certificate's",
        flags.tls_cert, flags.tls_key,
        flags.tls_client_ca.empty() ? "" : " and the CA " + flags.tls_client_ca);
  }
  errno = 0;
  const std::string ip = ip_to_string(address);
  const int port = address.port == 0                       ? server.bind_to_any_port(ip)
                   : server.bind_to_port(ip, address.port) ? address.port
                                                           : -1;
  if (port < 0) {
    return fail(ErrorCode::kSystem,
                "cannot listen on {} ({}): name an address of this host and a free port by "
                "--listen ADDRESS:PORT",
                to_string(address), errno == 0 ? "no such address" : std::strerror(errno));
  }
  address.port = static_cast<uint16_t>(port);
  return fmt::format("{}://{}/metrics", flags.tls_cert.empty() ? "http" : "https",
                     to_string(address));
}

constexpr uint64_t kLongestInterval = 3600;  // seconds

constexpr const char* kFooter = R"(Examples:
  pacecar metrics                            print them once
  pacecar metrics --listen                   http://127.0.0.1:18516/metrics, for this host
  pacecar metrics --listen 0.0.0.0:18516 --tls-cert host.pem --tls-key host.key
  pacecar metrics --textfile /var/lib/prometheus/node-exporter/pacecar.prom --interval 15
It covers all processes of this user, as root of all users. Scrape configuration, alert rules and a
dashboard: deploy/metrics.
Exit codes: 0 success, 1 failed, 2 wrong usage.)";

void add_flags(CLI::App& app, Flags& flags) {
  auto* listen =
      app.add_option("--listen", flags.listen,
                     "serve over HTTP at PORT, ADDRESS:PORT or [IPV6]:PORT "
                     "(127.0.0.1:18516); an address that other hosts can reach needs TLS")
          ->expected(0, 1);
  auto* textfile =
      app.add_option("--textfile", flags.textfile, "write this file, *.prom, for node_exporter")
          ->excludes(listen);
  app.add_option("--interval", flags.interval_s,
                 "write the file every so many seconds, until ended (0: once)")
      ->check(cli::whole_number(0, kLongestInterval))
      ->needs(textfile);
  auto* cert = app.add_option("--tls-cert", flags.tls_cert, "certificate, a file of PEM: HTTPS");
  auto* key = app.add_option("--tls-key", flags.tls_key, "its key, a file of PEM");
  auto* client_ca =
      app.add_option("--tls-client-ca", flags.tls_client_ca,
                     "serve only clients with a certificate signed by this one (PEM)");
  auto* no_tls = app.add_flag("--no-tls", flags.no_tls,
                              "plain HTTP even if other hosts can reach it, and read it");
  cert->needs(listen)->needs(key);
  key->needs(cert);
  client_ca->needs(cert);
  no_tls->needs(listen)->excludes(cert);
  app.footer(kFooter);
}

Result<void> serve(const Flags& flags, Exporter& exporter, const sigset_t& signals,
                   const Console& console) {
  ASSIGN_OR_RETURN(const auto address,
                   listen_address(flags.listen.empty() ? "" : flags.listen.front()));
  if (!is_loopback(address) && flags.tls_cert.empty() && !flags.no_tls) {
    return invalid(
        "other hosts reach {}: give --tls-cert and --tls-key, or --no-tls if every client that "
        "reaches it may read what runs here",
        to_string(address));
  }
  const auto server = make_server(flags, exporter);
  ASSIGN_OR_RETURN(const auto url, bind(*server, address, flags));
  console.note("serving " + url);
  Result<void> ended;
  std::atomic<bool> over{false};
  const pthread_t waiting = pthread_self();
  auto serving = start_thread<std::thread>("answers Prometheus", [&] {
    if (!server->listen_after_bind()) {
      ended = fail(ErrorCode::kSystem, "the server ended by itself: raise the limits (ulimit -a)");
    }
    over = true;
    pthread_kill(waiting, SIGTERM);
  });
  int signal = 0;
  sigwait(&signals, &signal);
  while (!server->is_running() && !over) std::this_thread::yield();  // a stop before is ignored
  server->stop();
  const timespec ending{kEndingSeconds, 0};
  if (!over && sigtimedwait(&signals, nullptr, &ending) < 0) std::_Exit(cli::kExitOk);
  serving.join();
  return ended;
}

std::string page_of(Exporter& exporter, const Console& console) {
  Page page = exporter.page();
  for (const std::string& warning : page.warnings) console.warn(warning);
  return std::move(page.text);
}

Result<void> write_file(const Flags& flags, Exporter& exporter, const sigset_t& signals,
                        const Console& console) {
  const timespec interval{static_cast<time_t>(flags.interval_s), 0};
  do {
    const std::string page = page_of(exporter, console);
    RETURN_IF_ERROR(replace_file(flags.textfile, page));
  } while (flags.interval_s > 0 && sigtimedwait(&signals, nullptr, &interval) < 0);
  return {};
}

Result<void> print(Exporter& exporter, const Console& console) {
  fmt::print("{}", page_of(exporter, console));
  return cli::flush_output();
}

Result<void> run(const Flags& flags, const Console& console) {
  RETURN_IF_ERROR(doctor::state_directories());  // checks PACECAR_STATE_DIR
  Exporter exporter;
  std::signal(SIGPIPE, SIG_IGN);  // a client that disconnects must not end the process
  if (!flags.listens && flags.textfile.empty()) return print(exporter, console);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // in all later threads; the main thread waits for these
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return flags.listens ? serve(flags, exporter, signals, console)
                       : write_file(flags, exporter, signals, console);
}

}  // namespace

int run_metrics(int argc, char** argv) {
  Flags flags;
  CLI::App app("What all Pacecar processes of this host count and measure, for Prometheus.",
               "pacecar metrics");
  add_flags(app, flags);
  const auto run_it = [&](const Console& console) {
    flags.listens = app.count("--listen") > 0;
    return run(flags, console);
  };
  return cli::run_subcommand(app, argc, argv, {}, run_it);
}

}  // namespace pacecar
