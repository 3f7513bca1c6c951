"""A headless Chromium, driven over pipes in the DevTools protocol.

`complaints` has every warning and error of a page's console and every exception, `requests` every
request of the page, so that a test can check that there were none.
"""

import json
import os
import shutil
import subprocess
import tempfile

from limits import LIMIT_S

SWITCHES = [
    "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe", "about:blank",
]
COMPLAINTS = {"warning", "error", "assert"}


def installed():
    return shutil.which("chromium")


class Browser:
    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._to_browser = os.pipe()
        self._from_browser, replies = os.pipe()
        # A sandbox does not work as root; the pages are the test's own.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        # The browser reads commands from descriptor 3 and writes replies to descriptor 4.
        wires = f'exec "$@" 3<&{commands} 4>&{replies}'
        self._process = subprocess.Popen(
            ["bash", "-c", wires, "chromium", installed(), *sandbox,
             f"--user-data-dir={self._profile.name}", *SWITCHES],
            pass_fds=(commands, replies), stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(replies)
        self._received = b""
        self._last_id = 0
        self._session = None
        self.complaints = []
        self.requests = []

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._session = None
        self.call("Browser.close")
        self._process.wait(LIMIT_S)
        os.close(self._to_browser)
        os.close(self._from_browser)
        self._profile.cleanup()

    def call(self, method, **parameters):
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next_message()
            if reply.get("id") == self._last_id:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                return reply["result"]
            self._note(reply)

    def open(self, path, width=1280, height=2000):
        """Shows a file and waits until the page is drawn."""
        self.complaints.clear()
        self.requests.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Page.navigate", url=f"file://{path}")
        self.settle()

    def settle(self):
        """Waits for the page's load and for two frames drawn after it."""
        self.evaluate("""new Promise((done) => {
            const frames = () => requestAnimationFrame(() => requestAnimationFrame(done));
            if (document.readyState === "complete") frames();
            else window.addEventListener("load", frames);
        })""")

    def evaluate(self, expression):
        """The value of an expression in the page, awaited where it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def _next_message(self):
        while b"\0" not in self._received:
            more = os.read(self._from_browser, 1 << 20)
            if not more:
                raise RuntimeError("chromium has ended")
            self._received += more
        message, self._received = self._received.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        kind, details = event["method"], event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.complaints.append(details["exceptionDetails"]["exception"].get("description"))
        elif kind == "Runtime.consoleAPICalled" and details["type"] in COMPLAINTS:
            self.complaints.append(str([argument.get("value") for argument in details["args"]]))
        elif kind == "Log.entryAdded" and details["entry"]["level"] in COMPLAINTS:
            self.complaints.append(details["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
