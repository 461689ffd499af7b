"""A headless Chromium on the web chat of a server: what a reader does and sees, and what the browser did behind it."""

import json
import shutil
import sys
import time

try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

SKIPPED = 77  # ctest's SKIP_RETURN_CODE of this test
CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")


def skip_without_browser():
    """Ends the process, saying so, where there is nothing to test with."""
    wanted = {"chromium": CHROMIUM, "chromium-driver": DRIVER, "python3-selenium": webdriver}
    missing = [package for package, found in wanted.items() if not found]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed (make setup-browser)")
        sys.exit(SKIPPED)


def start_browser(width=1280, height=860):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(service=Service(DRIVER), options=options)


class Page:
    """The page of `server`, opened anew with nothing kept."""

    def __init__(self, browser, server):
        self.browser = browser
        self.origin = f"http://127.0.0.1:{server.port}"
        browser.get(self.origin + "/health")  # a page of this origin without scripts
        browser.execute_script("localStorage.clear()")
        browser.get_log("performance")
        browser.get_log("browser")
        self.load()

    def load(self):
        self.browser.get(self.origin + "/")
        self.wait(lambda: self.script("return document.activeElement.id") == "prompt", "the page did not start")

    def script(self, source, *arguments):
        return self.browser.execute_script(source, *arguments)

    def wait(self, condition, message, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(message)
            time.sleep(0.02)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def shown(self, selector):
        return [element for element in self.all(selector) if element.is_displayed()]

    def text(self, selector):
        return self.script("return document.querySelector(arguments[0]).textContent", selector)

    def button(self, label, within="body"):
        """The last visible button with that label. An answer that streams replaces buttons while one looks."""
        buttons = []
        for _ in range(20):
            try:
                buttons = [button for button in self.shown(f"{within} button") if button.text == label]
                break
            except StaleElementReferenceException:
                continue
        assert buttons, f"no button {label!r} in {within}"
        return buttons[-1]

    def press(self, *keys):
        """Keys to whatever has the focus."""
        self.browser.switch_to.active_element.send_keys(*keys)

    def focused(self):
        """The accessible name of what has the focus."""
        return self.browser.switch_to.active_element.accessible_name

    def tab_to(self, name, back=False, limit=60):
        for _ in range(limit):
            if self.focused() == name:
                return
            webdriver.ActionChains(self.browser).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform() if back else self.press(Keys.TAB)
        raise AssertionError(f"{name!r} cannot be reached with the Tab key")

    def ask(self, text, wait=True):
        self.one("#prompt").send_keys(text, Keys.ENTER)
        self.wait(lambda: text in self.texts("user"), f"{text!r} does not stand among the messages")
        if wait:
            self.wait_answer()

    def running(self):
        return bool(self.all("[data-state=running]"))

    def wait_answer(self):
        self.wait(lambda: not self.running(), "the answer does not end")

    def texts(self, role):
        """The texts of all messages of "user" or "answer", without names and buttons."""
        part = {"user": ".user .text", "answer": ".answer .content"}[role]
        return self.script("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", part)

    def kept(self):
        """The conversations in localStorage, by title order of the page: as parsed objects."""
        return [json.loads(value) for value in self.script(
            "return Object.keys(localStorage).filter(k => k.startsWith('lily.conversation.')).map(k => localStorage.getItem(k))")]

    def requests(self):
        """[(method, address, body)] of everything the browser has asked the network for since the last call."""
        out = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                request = message["params"]["request"]
                out.append((request["method"], request["url"], request.get("postData")))
        return out

    def chat_requests(self):
        return [json.loads(body) for method, address, body in self.requests() if method == "POST" and address.endswith("/chat/completions")]

    def complaints(self):
        """What the browser logged as a warning or worse: refused scripts, errors of ours."""
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]
