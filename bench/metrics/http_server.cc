#include "bench/metrics/http_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace pacecar::metrics {
namespace {

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

}  // namespace

struct HttpServer::Inside {
  std::unique_ptr<httplib::Server> server;
  std::string url;
  std::atomic<bool> ended{false};
};

HttpServer::HttpServer(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options,
                                                     Exporter& exporter) {
  auto inside = std::make_unique<Inside>();
  inside->server = make_server(options);
  if (!inside->server->is_valid()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot use the certificate {} with the key {}{}: all are files of "
                            "PEM, and the key is the certificate's",
                            options.certificate, options.key,
                            options.client_ca.empty() ? "" : " and the CA " + options.client_ca));
  }
  set_limits(*inside->server);
  add_pages(*inside->server, exporter);
  Address address = options.address;
  errno = 0;
  const int port = address.port == 0
                       ? inside->server->bind_to_any_port(address.host)
                       : (inside->server->bind_to_port(address.host, address.port) ? address.port
                                                                                   : -1);
  if (port < 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot listen on {} ({}): name an address of this host and a free "
                            "port by --listen ADDRESS:PORT",
                            to_string(address),
                            errno == 0 ? "no such address" : std::strerror(errno)));
  }
  address.port = static_cast<uint16_t>(port);
  inside->url =
      fmt::format("{}://{}/metrics", has_tls(options) ? "https" : "http", to_string(address));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(inside)));
}

const std::string& HttpServer::url() const { return inside_->url; }

Result<void> HttpServer::run() {
  const bool ended_by_request = inside_->server->listen_after_bind();
  inside_->ended = true;
  if (ended_by_request) return {};
  return fail(ErrorCode::kSystem, "the server ended by itself: raise the limits (ulimit -a)");
}

// The library ignores a stop before it runs.
void HttpServer::stop() {
  while (!inside_->server->is_running() && !inside_->ended) std::this_thread::yield();
  inside_->server->stop();
}

}  // namespace pacecar::metrics
