#!/usr/bin/env python3
"""Takes a picture of a page as it is after some seconds, with headless Chromium.

    scripts/picture.py docs/page.png 'http://127.0.0.1:8080/' --width 1180 --height 1330 --seconds 30

--do EXPRESSION runs JavaScript in the page then; the picture follows after --settle seconds (default 2).
"""
import argparse
import base64
import fcntl
import json
import os
import subprocess
import tempfile
import time


class Browser:
    """One page, driven over the debugging pipe: descriptors 3 and 4 of the browser."""

    def __init__(self, profile):
        for_browser, self.to = os.pipe()
        self.back, of_browser = os.pipe()
        to_read, back_write = (fcntl.fcntl(d, fcntl.F_DUPFD, 10) for d in (for_browser, of_browser))  # not 3 or 4
        script = f'exec "$@" 3<&{to_read} 4>&{back_write} {to_read}<&- {back_write}>&-'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", script, "bash", "chromium", *flags], pass_fds=(to_read, back_write),
                                        stderr=subprocess.DEVNULL)
        for descriptor in (to_read, back_write, for_browser, of_browser):
            os.close(descriptor)
        self.last, self.heard, self.session = 0, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.heard:
                piece = os.read(self.back, 1 << 20)
                if not piece:
                    raise SystemExit("picture.py: the browser has ended")
                self.heard += piece
            text, self.heard = self.heard.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise SystemExit(f"picture.py: {method}: {answer['error']['message']}")
                return answer["result"]

    def end(self):
        os.close(self.to)
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("url")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=0, help="0: the whole page")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--settle", type=float, default=2)
    parser.add_argument("--do", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)

        def resize(height):
            browser.call("Emulation.setDeviceMetricsOverride", width=given.width, height=height, deviceScaleFactor=1,
                         mobile=given.width < 700)

        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        resize(given.height or 900)
        browser.call("Page.navigate", url=given.url)
        time.sleep(given.seconds)
        if given.do:
            browser.call("Runtime.evaluate", expression=given.do, awaitPromise=True)
            time.sleep(given.settle)
        if not given.height:
            resize(int(browser.call("Page.getLayoutMetrics")["cssContentSize"]["height"]))
            time.sleep(given.settle)
        picture = browser.call("Page.captureScreenshot", format="png")["data"]
        browser.end()
    with open(given.file, "wb") as out:
        out.write(base64.b64decode(picture))


main()
