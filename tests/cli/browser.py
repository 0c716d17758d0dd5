"""A headless Chromium, driven by Debian's chromium-driver.

https://www.w3.org/TR/webdriver2 describes the protocol: JSON over HTTP.
"""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name of a reference to an element
PROGRAMS = ("chromium", "chromedriver")
SECONDS = 30  # to wait for something, at most


def missing_programs() -> list[str]:
    """The programs that are not installed (Debian: ``apt install chromium-driver``)."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """A browser with one window; use it as a context manager. Nothing outside this machine can be reached from it."""

    def __init__(self, width: int = 1280, height: int = 1000):
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        started = (re.search(r"started successfully on port (\d+)", line) for line in self._driver.stdout)
        self._root = f"http://127.0.0.1:{next(filter(None, started))[1]}"
        arguments = ["headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"]
        arguments += [f"window-size={width},{height}", "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }
        self._session = ""  # while it is asked for, and then the path of all that follows
        self._session = "/session/" + self._ask("POST", "/session", capabilities={"alwaysMatch": wanted})["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.communicate()

    def _ask(self, method: str, path: str, **content) -> Any:
        body = json.dumps(content).encode() if method == "POST" else None
        request = urllib.request.Request(f"{self._root}{self._session}{path}", body, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, address: str) -> None:
        """Open a page."""
        self._ask("POST", "/url", url=address)

    def script(self, program: str, *arguments) -> Any:
        """What a JavaScript function of this body returns."""
        return self._ask("POST", "/execute/sync", script=program, args=list(arguments))

    def until(self, program: str, *arguments) -> Any:
        """Wait until a script returns something true, and return it."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = self.script(program, *arguments)
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"not within {SECONDS} s: {program} {arguments}")

    def text(self, selector: str) -> str:
        """What is written in the first element that a CSS selector finds."""
        return self.until("const e = document.querySelector(arguments[0]); return e && e.textContent", selector)

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.until("return !!document.querySelector(arguments[0])", selector)
        element = self._ask("POST", "/element", using="css selector", value=selector)[ELEMENT]
        self._ask("POST", f"/element/{element}/click")

    def type(self, selector: str, text: str) -> None:
        """Replace the text of an input."""
        element = self._ask("POST", "/element", using="css selector", value=selector)[ELEMENT]
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", text=text)

    def errors(self) -> list[str]:
        """What the page has written to the console as errors."""
        entries = self._ask("POST", "/se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        events = [json.loads(each["message"])["message"] for each in self._ask("POST", "/se/log", type="performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
