"""The web chat, driven in Chromium as a reader would: mouse, keyboard, reloads, and a model that means harm."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

from browser import Page, skip_without_browser, start_browser  # noqa: E402
from chain_checkpoint import Chain, write_chain  # noqa: E402
from lily_server import Server, ServerCase  # noqa: E402

skip_without_browser()
from selenium.webdriver.common.keys import Keys  # noqa: E402

WEATHER = ('[{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": '
           '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]')


class PageCase(ServerCase):
    """One browser for all tests of a class; a page that has forgotten everything for each."""

    size = (1280, 860)

    @classmethod
    def start(cls, model, *flags):
        super().start(model, *flags)
        cls.browser = start_browser(*cls.size)
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        self.page = Page(self.browser, self.server)

    def tearDown(self):
        self.assertEqual(self.page.complaints(), [])

    def say_in_settings(self, **values):
        self.page.one("#open-settings").click()
        for name, value in values.items():
            field = self.page.one(f"#settings [name={name}]")
            field.clear()
            field.send_keys(value)
        self.page.button("Done", "#settings").click()


class TinyTest(PageCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def test_answers_with_thinking_folded_and_numbers(self):
        page = self.page
        page.ask("What is 17 + 25?")
        self.assertEqual(page.texts("answer"), ["17 + 25 = 42."])
        self.assertFalse(page.one(".thinking").get_property("open"))
        self.assertTrue(page.text(".thinking .thoughts"))
        self.assertRegex(page.text(".answer .status"), r"^\d+ tokens · [\d.,]+ tok/s")
        self.assertRegex(page.one("#context").text, r"^\d+ / 8,192 tokens$")
        self.assertEqual(self.browser.title, "What is 17 + 25? · lily")

    def test_thinking_can_be_switched_off(self):
        page = self.page
        page.one("#thinking").click()
        page.requests()
        page.ask("What is 2 + 3?")
        self.assertEqual(page.texts("answer"), ["2 + 3 = 5."])
        self.assertEqual(page.shown(".thinking"), [])
        [request] = page.chat_requests()
        self.assertEqual(request["chat_template_kwargs"], {"enable_thinking": False})
        self.assertNotIn("temperature", request)
        page.load()
        self.assertFalse(page.one("#thinking").get_property("checked"))

    def test_the_history_goes_along(self):
        page = self.page
        page.ask("What is 2 + 3?")
        page.ask("What is 17 + 25?")
        first, second = page.chat_requests()
        self.assertEqual([message["role"] for message in second["messages"]], ["user", "assistant", "user"])
        self.assertEqual(second["messages"][1]["content"], "2 + 3 = 5.")
        self.assertEqual(second["messages"][:1], first["messages"])

    def test_editing_cuts_the_history(self):
        page = self.page
        page.ask("What is 2 + 3?")
        page.ask("What is 17 + 25?")
        page.all(".user")[0].find_element("xpath", ".//button[text()='Edit']").click()
        editor = page.one(".editor textarea")
        self.assertEqual(editor.get_property("value"), "What is 2 + 3?")
        editor.clear()
        page.requests()
        editor.send_keys("What is 1 + 1?", Keys.ENTER)
        page.wait(lambda: page.texts("user") == ["What is 1 + 1?"], "the history was not cut")
        page.wait_answer()
        self.assertEqual(page.texts("answer"), ["1 + 1 = 2."])
        [request] = page.chat_requests()
        self.assertEqual(request["messages"], [{"role": "user", "content": "What is 1 + 1?"}])
        self.assertEqual(len(page.kept()[0]["messages"]), 2)

    def test_an_edit_can_be_given_up(self):
        page = self.page
        page.ask("What is 2 + 3?")
        page.button("Edit").click()
        page.press("something else", Keys.ESCAPE)
        self.assertEqual(page.texts("user"), ["What is 2 + 3?"])
        self.assertEqual(page.focused(), "Edit")

    def test_regenerating_asks_the_same_again(self):
        page = self.page
        page.ask("What is 2 + 3?")
        page.ask("What is 17 + 25?")
        before = page.chat_requests()[-1]
        page.button("Regenerate").click()
        page.wait(lambda: page.running() or page.requests(), "nothing was asked")
        page.wait_answer()
        self.assertEqual(page.texts("user"), ["What is 2 + 3?", "What is 17 + 25?"])
        self.assertEqual(page.texts("answer"), ["2 + 3 = 5.", "17 + 25 = 42."])
        kept = page.kept()[0]["messages"]
        self.assertEqual([message["content"] for message in before["messages"]], [message["content"] for message in kept[:3]])

    def test_reloading_restores(self):
        page = self.page
        page.ask("What is 17 + 25?")
        before = (page.texts("user"), page.texts("answer"), page.text(".answer .status"), page.one("#context").text)
        page.load()
        self.assertEqual((page.texts("user"), page.texts("answer"), page.text(".answer .status"), page.one("#context").text), before)
        page.ask("What is 2 + 3?")
        self.assertEqual(page.texts("answer")[1], "2 + 3 = 5.")

    def test_conversations_are_listed_opened_deleted_and_brought_back(self):
        page = self.page
        page.ask("What is 2 + 3?")
        page.button("New conversation").click()
        self.assertEqual(page.texts("user"), [])
        page.ask("What is 17 + 25?")
        titles = lambda: [button.text for button in page.all("#conversations .open")]  # noqa: E731
        self.assertEqual(titles(), ["What is 17 + 25?", "What is 2 + 3?"])
        page.button("What is 2 + 3?", "#conversations").click()
        self.assertEqual(page.texts("answer"), ["2 + 3 = 5."])
        self.assertEqual(page.one("#conversations [aria-current]").text, "What is 2 + 3?")
        self.browser.execute_script("document.querySelector('#conversations li:has([aria-current]) .delete').click()")
        self.assertEqual(titles(), ["What is 17 + 25?"])
        self.assertEqual(page.texts("user"), [])
        page.button("Undo").click()
        self.assertEqual(page.texts("answer"), ["2 + 3 = 5."])
        self.assertEqual(len(titles()), 2)

    def test_settings_reach_the_request_and_are_kept(self):
        page = self.page
        self.say_in_settings(system="You are terse.", temperature="0.5", top_p="0.9", top_k="20", min_p="0.05", max_tokens="7", seed="42")
        page.load()
        page.requests()
        page.ask("Count from 1 to 20.")
        [request] = page.chat_requests()
        self.assertEqual(request["messages"][0], {"role": "system", "content": "You are terse."})
        wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "max_tokens": 7, "seed": 42}
        self.assertEqual({name: request[name] for name in wanted}, wanted)
        self.assertRegex(page.text(".answer .status"), r"^cut off by the token limit · 7 tokens")
        page.one("#open-settings").click()
        page.button("Reset").click()
        page.button("Done").click()
        page.ask("What is 2 + 3?")
        [request] = page.chat_requests()
        self.assertEqual([name for name in wanted if name in request], [])

    def test_what_the_server_refuses_is_shown_and_can_be_tried_again(self):
        page = self.page
        page.script("localStorage.setItem('lily.settings', JSON.stringify({thinking: false, temperature: '5'}))")
        page.load()
        page.ask("What is 2 + 3?")
        self.assertIn("temperature", page.one(".answer .error").text)
        self.assertEqual(len(page.complaints()), 1)  # the browser's own line about the 400
        page.one("#open-settings").click()
        page.button("Reset").click()
        page.button("Done").click()
        page.button("Try again").click()
        page.wait(lambda: page.texts("answer") == ["2 + 3 = 5."], "no second answer")
        self.assertEqual(page.shown(".error"), [])

    def test_broken_tools_are_said_before_anything_is_sent(self):
        page = self.page
        page.script("localStorage.setItem('lily.settings', JSON.stringify({tools: '[{'}))")
        page.load()
        page.requests()
        page.one("#prompt").send_keys("What is 2 + 3?", Keys.ENTER)
        page.wait(lambda: page.shown("#notice"), "no notice")
        self.assertIn("expected a JSON array", page.one("#notice").text)
        self.assertEqual(page.one("#prompt").get_property("value"), "What is 2 + 3?")
        self.assertEqual(page.requests(), [])

    def test_tool_calls_and_their_results(self):
        page = self.page
        page.script("localStorage.setItem('lily.settings', JSON.stringify({thinking: false, temperature: '0', tools: arguments[0]}))", WEATHER)
        page.load()
        page.ask("What is the weather in Paris?")
        self.assertEqual(page.text(".call .name"), "get_weather")
        self.assertEqual(re.sub(r"\s", "", page.text(".call pre code")), '{"city":"Paris"}')
        page.requests()
        page.one(".call textarea").send_keys('{"temperature": 21, "condition": "sunny"}')
        page.button("Use as result").click()
        page.wait(lambda: len(page.all(".answer")) == 2, "no answer to the result")
        page.wait_answer()
        [request] = page.chat_requests()
        call, result = request["messages"][1:]
        self.assertEqual(call["tool_calls"][0]["function"]["name"], "get_weather")
        self.assertEqual(result, {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"],
                                  "content": '{"temperature": 21, "condition": "sunny"}'})
        self.assertIn("21", page.texts("answer")[1])
        page.load()
        self.assertIn("sunny", page.text(".call .result"))

    def test_nothing_leaves_the_origin(self):
        page = self.page
        page.load()
        page.ask("What is 2 + 3?")
        addresses = [address for _, address, _ in page.requests()]
        self.assertIn(f"{page.origin}/page/app.js", addresses)
        self.assertEqual([address for address in addresses if not address.startswith(page.origin + "/")], [])

    def test_the_keyboard_is_enough(self):
        page = self.page
        page.press("What is 2 + 3?", Keys.ENTER)
        page.wait(lambda: page.texts("answer"), "no answer")
        page.wait_answer()
        self.assertEqual(page.focused(), "Message")
        page.press(Keys.ARROW_UP)  # in an empty box: edit the last message
        self.assertEqual(page.focused(), "Edit the message")
        page.press(Keys.ESCAPE)
        page.tab_to("Regenerate")
        self.assertNotEqual(page.script("return getComputedStyle(document.activeElement).outlineStyle"), "none")
        page.tab_to("Message")
        page.tab_to("Settings", back=True)
        page.press(Keys.ENTER)
        self.assertTrue(page.one("#settings").get_property("open"))
        page.press(Keys.ESCAPE)
        self.assertFalse(page.one("#settings").get_property("open"))
        self.assertEqual(page.focused(), "Settings")
        page.tab_to("New conversation", back=True)
        page.press(Keys.ENTER)
        self.assertEqual(page.texts("user"), [])
        self.assertEqual(page.focused(), "Message")

    def test_a_screen_reader_is_told(self):
        page = self.page
        page.ask("What is 2 + 3?")
        said = page.script("return [...document.querySelectorAll('#live p')].map(p => p.textContent)")
        self.assertEqual(said, ["Answering.", "2 + 3 = 5.", "The answer is complete."])
        self.assertEqual(page.one("#live").aria_role, "log")
        nameless = [element.get_attribute("outerHTML") for element in page.shown("button, input, textarea, summary")
                    if not element.accessible_name]
        self.assertEqual(nameless, [])


class KeyTest(PageCase):
    """A server that asks for an API key."""

    @classmethod
    def setUpClass(cls):
        keys = cls.folder() / "keys"
        keys.write_text("open sesame\n")
        cls.start("tiny", "--api-key-file", keys)

    def test_the_key_is_asked_for_and_kept(self):
        page = self.page
        page.wait(lambda: page.shown("#notice"), "no notice")
        self.assertIn("API key", page.one("#notice").text)
        self.assertEqual(page.script("return localStorage.getItem('lily.settings')"), None)
        page.button("Enter it").click()
        page.one("#settings [name=key]").send_keys("open sesame")
        page.button("Done", "#settings").click()
        page.wait(lambda: page.text("#welcome .hello") == "tiny", "the model is not named")
        self.assertIn("401", page.complaints()[0])  # the browser's own line
        page.load()
        page.ask("What is 2 + 3?")
        self.assertEqual(page.texts("answer"), ["2 + 3 = 5."])


class PhoneTest(PageCase):
    size = (500, 800)  # narrower windows Chromium does not make; the viewport is set below

    @classmethod
    def setUpClass(cls):
        cls.start("tiny")
        cls.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False})

    def test_fits_and_has_a_drawer(self):
        page = self.page
        page.ask("What is 2 + 3?")
        width = page.script("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(*width)
        self.assertEqual(page.shown("#sidebar button"), [])
        page.one("#toggle-sidebar").click()
        page.wait(lambda: page.shown("#new-conversation"), "no drawer")
        self.assertEqual(page.focused(), "New conversation")
        page.press(Keys.ESCAPE)
        page.wait(lambda: not page.shown("#new-conversation"), "the drawer stays")
        self.assertEqual(page.focused(), "Conversations")


HOSTILE = [
    b"<img src=x onerror=\"document.title='owned'\"> ", b"<script>document.title='owned'</script> ", b"[link](javascript:alert(1)) ",
    b"![picture](https://elsewhere.invalid/leak.png) ", b"<a href=\"javascript:alert(2)\">raw</a> ", b"<svg onload=alert(3)> ",
    b"<style>body{display:none}</style> ", b"[data](data:text/html,x) ", b"<https://example.org/> ", b"**bold**\n\n",
    b"```x\"onmouseover=\"alert(4)\n</code></pre><img src=y onerror=alert(5)>\n```", b"\n\n\n",
    b"| a | b |\n|---|--:|\n| <iframe src=https://elsewhere.invalid/> | 2 |\n\n\n\n",
    b"```python\nprint('<b>')\n```",
]


class HostileTest(PageCase):
    """A model whose answer is an attack."""

    @classmethod
    def setUpClass(cls):
        model = cls.folder() / "hostile"
        write_chain(model, Chain.answer(HOSTILE, [b"<img src=z onerror=alert(6)>"]))
        cls.start(model)

    def test_markup_is_inert(self):
        page = self.page
        page.ask("<img src=q onerror=\"document.title='owned'\">")
        page.wait(lambda: page.all(".hljs-string"), "the code was not coloured")
        found = page.script("return [...document.querySelectorAll('#messages *, #live *')].map(e => e.tagName).filter(t => "
                            "['IMG', 'SCRIPT', 'IFRAME', 'STYLE', 'SVG', 'OBJECT'].includes(t.toUpperCase()))")
        self.assertEqual(found, [])
        handlers = page.script("return [...document.querySelectorAll('#messages *')].flatMap(e => [...e.attributes])"
                               ".filter(a => a.name.startsWith('on') || a.name === 'style' && a.ownerElement.tagName !== 'TEXTAREA').map(a => a.name)")
        self.assertEqual(handlers, [])
        links = page.script("return [...document.querySelectorAll('.content a')].map(a => [a.textContent, a.getAttribute('href'), a.rel])")
        safe = "noopener noreferrer nofollow"
        self.assertEqual(links, [["link", None, safe], ["picture", "https://elsewhere.invalid/leak.png", safe], ["data", None, safe],
                                 ["https://example.org/", "https://example.org/", safe]])
        self.assertIn("<script>document.title='owned'</script>", page.text(".content"))
        self.assertEqual(page.text(".content strong"), "bold")
        self.assertEqual(page.text(".thoughts"), "<img src=z onerror=alert(6)>")
        self.assertTrue(self.browser.title.startswith("<img src=q"), self.browser.title)
        asked = [address for _, address, _ in page.requests() if not address.startswith((page.origin + "/page/", page.origin + "/v1/"))]
        self.assertEqual([address for address in asked if address != page.origin + "/"], [])

    def test_the_policy_holds_where_the_sanitiser_would_not(self):
        page = self.page
        page.script("const s = document.createElement('img'); s.src = 'https://elsewhere.invalid/'; document.body.append(s)")
        page.wait(lambda: any("Content Security Policy" in line for line in page.complaints()), "the image was not refused")
        with self.assertRaisesRegex(Exception, "TrustedHTML"):
            page.script("document.body.innerHTML = '<b>x</b>'")
        page.complaints()


class EndlessTest(PageCase):
    """A model that never comes to an end."""

    @classmethod
    def setUpClass(cls):
        model = cls.folder() / "endless"
        write_chain(model, Chain.forever([b"one ", b"more ", b"word, "]).follow(b"\n\n", b"one "), context=65536)
        cls.start(model)

    def setUp(self):
        super().setUp()
        self.page.one("#thinking").click()

    def tearDown(self):
        self.page.browser.get("about:blank")
        self.assertTrue(self.server.wait_idle())
        super().tearDown()

    def begin(self):
        self.page.ask("Go on.", wait=False)
        self.page.wait(lambda: "word" in self.page.texts("answer")[0], "nothing comes")

    def stopped(self):
        self.page.wait_answer()
        self.assertTrue(self.server.wait_idle(), "the server goes on")
        self.assertIn("word", self.page.texts("answer")[0])
        self.assertRegex(self.page.text(".answer .status"), r"^stopped")

    def test_grows_and_stops_by_button(self):
        self.begin()
        length = len(self.page.texts("answer")[0])
        self.page.wait(lambda: len(self.page.texts("answer")[0]) > length, "it does not grow")
        self.assertEqual(self.server.stats()["running"], 1)
        self.assertEqual(self.page.shown("#send"), [])
        self.page.one("#stop").click()
        self.stopped()
        self.assertEqual(self.page.kept()[0]["messages"][1]["state"], "stopped")
        self.assertEqual(self.page.focused(), "Message")

    def test_stops_by_escape(self):
        self.begin()
        self.page.press(Keys.ESCAPE)
        self.stopped()

    def test_a_reload_keeps_what_was_there(self):
        self.begin()
        self.page.load()
        self.stopped()
        self.assertEqual(self.page.shown("#stop"), [])

    def test_another_conversation_stops_it(self):
        self.begin()
        self.page.button("New conversation").click()
        self.assertTrue(self.server.wait_idle())
        self.assertEqual(self.page.texts("answer"), [])
        self.page.button("Go on.", "#conversations").click()
        self.stopped()

    def test_deleting_it_stops_it_for_good(self):
        self.begin()
        self.page.script("document.querySelector('#conversations .delete').click()")
        self.assertTrue(self.server.wait_idle())
        self.page.wait(lambda: not self.page.running() and self.page.shown("#send"), "it goes on")
        self.assertEqual(self.page.kept(), [])

    def test_a_reader_who_scrolls_up_is_left_there(self):
        page = self.page
        self.begin()
        page.wait(lambda: page.script("return document.documentElement.scrollHeight > innerHeight * 2"), "too short to scroll")
        page.script("scrollTo(0, 0)")
        page.wait(lambda: page.shown("#to-end"), "no way back to the end")
        height = page.script("return document.documentElement.scrollHeight")
        page.wait(lambda: page.script("return document.documentElement.scrollHeight") > height, "it does not grow")
        self.assertEqual(page.script("return scrollY"), 0)
        page.one("#to-end").click()
        page.wait(lambda: page.script("return scrollY > 0"), "it does not follow")

    def test_a_server_that_goes_away_is_said(self):
        with Server(self.server_model()) as server:
            page = Page(self.browser, server)
            page.one("#thinking").click()
            page.ask("Go on.", wait=False)
            page.wait(lambda: "word" in page.texts("answer")[0], "nothing comes")
            server.process.kill()
            page.wait_answer()
            self.assertIn("broke off", page.one(".answer .error").text)
            self.assertIn("word", page.texts("answer")[0])
            page.complaints()

    def server_model(self):
        return self.server.process.args[2]


if __name__ == "__main__":
    unittest.main(verbosity=1)
