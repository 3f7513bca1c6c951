// `pacecar metrics`: what all Pacecar processes of this host count, for Prometheus.
#include <fmt/core.h>
#include <fmt/format.h>
#include <httplib.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/metrics/address.h"
#include "bench/metrics/exporter.h"
#include "bench/metrics/textfile.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/files.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "transport/base/params_environment.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"
#include "transport/state/state_directory.h"

namespace pacecar {
namespace {

using namespace metrics;
using perf::Console;

struct HttpOptions {
  Address address;
  std::string certificate;  // PEM files; empty: no TLS
  std::string key;
  std::string client_ca;  // clients show a certificate that it signed; empty: they need none
};

// One page is made at a time; two more threads answer other requests.
constexpr size_t kThreads = 3;
// A client that takes longer to send its request, or to read the answer, is dropped.
constexpr time_t kPatienceSeconds = 5;
// Idle ones hold a thread each: shorter than Prometheus' usual interval, it connects anew.
constexpr time_t kKeepAliveSeconds = 1;
constexpr size_t kMaxRequestBytes = 4096;

constexpr const char* kFrontPage =
    "<!DOCTYPE html><title>pacecar metrics</title><h1>pacecar metrics</h1>"
    "<p><a href=\"/metrics\">Metrics</a></p>\n";

Format wanted_format(const httplib::Request& request) {
  return request.get_header_value("Accept").find("application/openmetrics-text") ==
                 std::string::npos
             ? Format::kPrometheus
             : Format::kOpenMetrics;
}

bool has_tls(const HttpOptions& options) { return !options.certificate.empty(); }

std::unique_ptr<httplib::Server> make_server(const HttpOptions& options) {
  if (!has_tls(options)) return std::make_unique<httplib::Server>();
  const char* const ca = options.client_ca.empty() ? nullptr : options.client_ca.c_str();
  return std::make_unique<httplib::SSLServer>(options.certificate.c_str(), options.key.c_str(), ca);
}

void set_limits(httplib::Server& server) {
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_read_timeout(kPatienceSeconds);
  server.set_write_timeout(kPatienceSeconds);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_payload_max_length(kMaxRequestBytes);
  // Without the library's SO_REUSEPORT, by which a second exporter would take half of the callers.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

void add_pages(httplib::Server& server, Exporter& exporter) {
  const auto metrics = [&exporter](const httplib::Request& request, httplib::Response& response) {
    const Format format = wanted_format(request);
    response.set_content(exporter.page(format).text, std::string(content_type(format)).c_str());
  };
  server.Get("/metrics", metrics);
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(kFrontPage, "text/html; charset=utf-8");
  });
}

// Serves pages of metrics over HTTP, or HTTPS, until stop().
class HttpServer {
 public:
  // Listens; nobody is served before run(). Errors: kInvalidArgument (certificate, key), kSystem.
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, Exporter& exporter) {
    auto made = std::make_unique<HttpServer>();
    made->server_ = make_server(options);
    if (!made->server_->is_valid()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cannot use the certificate {} with the key {}{}: all are files of "
                              "PEM, and the key is the certificate's",
                              options.certificate, options.key,
                              options.client_ca.empty() ? "" : " and the CA " + options.client_ca));
    }
    set_limits(*made->server_);
    add_pages(*made->server_, exporter);
    Address address = options.address;
    errno = 0;
    const int port =
        address.port == 0
            ? made->server_->bind_to_any_port(address.host)
            : (made->server_->bind_to_port(address.host, address.port) ? address.port : -1);
    if (port < 0) {
      return fail(
          ErrorCode::kSystem,
          fmt::format("cannot listen on {} ({}): name an address of this host and a free "
                      "port by --listen ADDRESS:PORT",
                      to_string(address), errno == 0 ? "no such address" : std::strerror(errno)));
    }
    address.port = static_cast<uint16_t>(port);
    made->url_ =
        fmt::format("{}://{}/metrics", has_tls(options) ? "https" : "http", to_string(address));
    return made;
  }

  // "http://127.0.0.1:18516/metrics"
  const std::string& url() const { return url_; }
  // Serves until stop() of another thread, once. Errors: kSystem.
  Result<void> run() {
    const bool ended_by_request = server_->listen_after_bind();
    ended_ = true;
    if (ended_by_request) return {};
    return fail(ErrorCode::kSystem, "the server ended by itself: raise the limits (ulimit -a)");
  }
  // The library ignores a stop before it runs.
  void stop() {
    while (!server_->is_running() && !ended_) std::this_thread::yield();
    server_->stop();
  }  // of a server that runs, or is about to

 private:
  std::unique_ptr<httplib::Server> server_;
  std::string url_;
  std::atomic<bool> ended_{false};
};

constexpr uint64_t kLongestInterval = 3600;  // seconds

constexpr const char* kFooter = R"(Examples:
  pacecar metrics                            print them once
  pacecar metrics --listen                   http://127.0.0.1:18516/metrics, for this host
  pacecar metrics --listen 0.0.0.0:18516 --tls-cert host.pem --tls-key host.key
  pacecar metrics --textfile /var/lib/prometheus/node-exporter/pacecar.prom --interval 15
It tells of all processes of this user, as root of all users. Scrape configuration, alert rules and
a dashboard: deploy/metrics.
Exit codes: 0 success, 1 failed, 2 wrong usage.)";

struct Flags {
  std::vector<std::string> listen;  // at most one
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  bool no_tls = false;
  std::string textfile;
  uint64_t interval_s = 0;
  bool openmetrics = false;
  bool quiet = false;
  bool no_color = false;
  bool listens = false;
};

void add_flags(CLI::App& app, Flags& flags) {
  auto* listen = app.add_option("--listen", flags.listen,
                                "serve over HTTP at PORT, ADDRESS:PORT or [IPV6]:PORT "
                                "(127.0.0.1:18516); another than this host's own wants TLS")
                     ->expected(0, 1);
  auto* cert = app.add_option("--tls-cert", flags.tls_cert, "certificate, a file of PEM: HTTPS");
  auto* key = app.add_option("--tls-key", flags.tls_key, "its key, a file of PEM");
  auto* client_ca =
      app.add_option("--tls-client-ca", flags.tls_client_ca,
                     "serve only clients with a certificate signed by this one (PEM)");
  auto* no_tls = app.add_flag("--no-tls", flags.no_tls,
                              "plain HTTP also where other hosts reach it, and read it");
  cert->needs(listen)->needs(key);
  key->needs(cert);
  client_ca->needs(cert);
  no_tls->needs(listen)->excludes(cert);
  auto* textfile =
      app.add_option("--textfile", flags.textfile, "write this file, *.prom, for node_exporter")
          ->excludes(listen);
  app.add_option("--interval", flags.interval_s,
                 "write the file every so many seconds, until ended (0: once)")
      ->check(perf::whole_number(0, kLongestInterval))
      ->needs(textfile);
  app.add_flag("--openmetrics", flags.openmetrics,
               "print OpenMetrics 1.0 (over HTTP the client chooses)")
      ->excludes(listen)
      ->excludes(textfile);
  app.add_flag("--quiet", flags.quiet, "no messages but warnings and errors");
  app.add_flag("--no-color", flags.no_color, "no colours");
  app.footer(kFooter);
}

// Empty: the default directories.
Result<std::string> state_directory() {
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  if (params.state_dir == kNoStateDirectory) {
    return fail(ErrorCode::kInvalidArgument,
                "PACECAR_STATE_DIR is none: processes with that setting cannot be seen; unset it");
  }
  return params.state_dir;
}

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

Result<void> serve(const Flags& flags, Exporter& exporter, const Console& console) {
  ASSIGN_OR_RETURN(const auto address,
                   parse_address(flags.listen.empty() ? "" : flags.listen.front()));
  if (!is_loopback(address) && flags.tls_cert.empty() && !flags.no_tls) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("other hosts reach {}: give --tls-cert and --tls-key, or --no-tls if "
                            "every client that reaches it may read what runs here",
                            to_string(address)));
  }
  ASSIGN_OR_RETURN(const auto server, HttpServer::open({.address = address,
                                                        .certificate = flags.tls_cert,
                                                        .key = flags.tls_key,
                                                        .client_ca = flags.tls_client_ca},
                                                       exporter));
  console.note("serving " + server->url());
  Result<void> ended;
  const pthread_t waiting = pthread_self();
  std::thread serving([&] {
    ended = server->run();
    pthread_kill(waiting, SIGTERM);
  });
  const sigset_t signals = ending_signals();
  int signal = 0;
  sigwait(&signals, &signal);
  server->stop();
  serving.join();
  return ended;
}

Result<void> write_file(const Flags& flags, Exporter& exporter, const Console& console) {
  const sigset_t signals = ending_signals();
  const timespec interval{static_cast<time_t>(flags.interval_s), 0};
  do {
    const Page page = exporter.page(Format::kPrometheus);
    for (const std::string& warning : page.warnings) console.warn(warning);
    RETURN_IF_ERROR(replace_file(flags.textfile, page.text));
  } while (flags.interval_s > 0 && sigtimedwait(&signals, nullptr, &interval) < 0);
  return {};
}

Result<void> print(const Flags& flags, Exporter& exporter, const Console& console) {
  const Page page = exporter.page(flags.openmetrics ? Format::kOpenMetrics : Format::kPrometheus);
  for (const std::string& warning : page.warnings) console.warn(warning);
  std::fwrite(page.text.data(), 1, page.text.size(), stdout);
  return perf::flush_output();
}

Result<void> run(const Flags& flags, const Console& console) {
  ASSIGN_OR_RETURN(auto directory, state_directory());
  Exporter exporter(std::move(directory));
  std::signal(SIGPIPE, SIG_IGN);  // a client that disconnects must not end the process
  if (!flags.listens && flags.textfile.empty()) return print(flags, exporter, console);
  const sigset_t signals = ending_signals();
  // in all later threads; the main thread waits for these
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return flags.listens ? serve(flags, exporter, console) : write_file(flags, exporter, console);
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
  return perf::run_subcommand(app, argc, argv, {.quiet = &flags.quiet, .no_color = &flags.no_color},
                              run_it);
}

}  // namespace pacecar
