"""Headless Chromium, driven through the DevTools protocol over pipes."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--remote-debugging-pipe")
SECONDS = 60  # for one answer; far more than any takes


def find_chromium():
    """Path of the browser, or None where it is not installed."""
    return shutil.which("chromium")


class Browser:
    """One browser with a profile of its own; use in a with statement."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()  # commands to it, answers from it

        def take_pipes():
            # Chromium reads commands from descriptor 3 and answers on 4.
            commands, answers = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [find_chromium(), *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=take_pipes, start_new_session=True)
        os.close(ours[0])
        os.close(theirs[1])
        self.commands, self.answers = ours[1], theirs[0]
        self.unread = b""
        self.events = []
        self.last_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def receive(self, deadline):
        """The next message; messages end with a zero byte."""
        while b"\0" not in self.unread:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.answers], [], [], max(left, 0))
            part = os.read(self.answers, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("no answer from the browser" if not ready else "it has ended")
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self.receive(deadline)
            if "id" not in answer:
                self.events.append(answer)
            elif answer["id"] == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]


class Page:
    """A page that has been loaded; keeps what it asked for and what it complained about."""

    def __init__(self, browser, url, width=1400, height=1000, dark=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        started = time.monotonic()
        self.call("Page.navigate", url=url)
        self.wait_for("document.documentElement && document.documentElement.dataset.ready")
        self.wait_for_frame()
        self.load_seconds = time.monotonic() - started

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def events(self, method):
        return [event["params"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == method]

    def evaluate(self, expression):
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression):
        deadline = time.monotonic() + SECONDS
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.01)

    def wait_for_frame(self):
        """Until what was asked for has been drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => "
                      "requestAnimationFrame(() => done(true))))")

    def requests(self):
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def complaints(self):
        """Exceptions, console errors and warnings, refused loads."""
        found = [event["exceptionDetails"] for event in self.events("Runtime.exceptionThrown")]
        found += [event for event in self.events("Runtime.consoleAPICalled")
                  if event["type"] in ("error", "warning", "assert")]
        found += [event["entry"] for event in self.events("Log.entryAdded")
                  if event["entry"]["level"] in ("error", "warning")]
        return found

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wheel(self, x, y, delta, modifiers=0):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta, modifiers=modifiers)
        self.wait_for_frame()

    def drag(self, x, y, by_x, by_y=0):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for step in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x + step * by_x, y + step * by_y, button="left", buttons=1)
        self.mouse("mouseReleased", x + by_x, y + by_y, button="left", clickCount=1)
        self.wait_for_frame()

    def click(self, x, y):
        self.drag(x, y, 0)

    def press(self, key, text=None, modifiers=0):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers,
                  **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)
        self.wait_for_frame()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.wait_for_frame()

    def screenshot(self, path, whole=False):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(image["data"]))

    def pixel(self, x, y):
        """Red, green, blue of a point of the page, as drawn on the canvas there."""
        return self.evaluate(f"""(() => {{
            const canvas = document.elementFromPoint({x}, {y});
            const corner = canvas.getBoundingClientRect();
            const ratio = devicePixelRatio;
            return [...canvas.getContext("2d").getImageData(
                ({x} - corner.left) * ratio, ({y} - corner.top) * ratio, 1, 1).data].slice(0, 3);
        }})()""")
