// Uses the chat page of `harmonics serve MODEL` like a user, in Chromium, and takes screenshots.
//
//   npm install playwright-core
//   harmonics serve stories260K.bin --tokenizer tok512.bin --listen 127.0.0.1:8080 --context 512
//   node tests/journeys/chat_page.mjs http://127.0.0.1:8080 FOLDER_OF_PICTURES
import assert from 'node:assert';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';

const [address, folder] = process.argv.slice(2);
if (!folder) throw new Error('usage: chat_page.mjs ADDRESS FOLDER');
fs.mkdirSync(folder, { recursive: true });
const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'chat-page-'));
const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking'];
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: flags, viewport: { width: 1280, height: 800 },
});
const page = await browser.newPage();
const errors = [];
page.on('pageerror', (error) => errors.push(String(error)));
page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
let number = 0;
const picture = (name) => page.screenshot({ path: path.join(folder, `${++number}_${name}.png`) });
const articles = (kind) => page.locator(`#messages article.${kind}`);
const written = async () => { await page.waitForSelector('#send:visible', { timeout: 60000 }); };
const say = async (text) => { await page.fill('#message', text); await page.keyboard.press('Enter'); };
// Sends a message and clicks the button during the answer. A small model finishes quickly, so the page gets the events
// one by one, and none after the eighth before the click.
const sayAndClick = async (text, button) => {
  await page.evaluate((name) => {
    const plain = ReadableStreamDefaultReader.prototype.read;
    let waiting = [];
    let given = 0;
    ReadableStreamDefaultReader.prototype.read = async function () {
      if (!waiting.length) {
        const { value, done } = await plain.call(this);
        if (done) return { value, done };
        waiting = value.split(/(?<=\n\n)/);
      }
      if (++given === 8) {
        await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        ReadableStreamDefaultReader.prototype.read = plain;
        window.writtenAtClick = document.querySelector('article.assistant:last-of-type').textContent;
        document.querySelector(name).click();
      }
      return { value: waiting.shift(), done: false };
    };
    window.writtenAtClick = '';
  }, button);
  await say(text);
  await page.waitForFunction(() => window.writtenAtClick.length > 0);
};

try {
  await page.goto(address);
  await page.waitForFunction(() => document.querySelector('#model').textContent !== 'model');
  await picture('empty');

  await page.click('#show-settings');
  await page.fill('#temperature', '0');
  await page.fill('#max_tokens', '40');
  await picture('settings');
  await page.click('#show-settings');

  await say('Once upon a time');
  await written();
  const first = await articles('assistant').first().innerText();
  assert(first.length > 0);
  assert.match(await page.textContent('#rate'), /tokens\/s/);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'message');
  await picture('answer');

  await page.click('#retry');
  await written();
  assert.equal(await articles('assistant').count(), 1);
  assert.equal(await articles('user').count(), 1);
  assert.equal(await articles('assistant').first().innerText(), first); // temperature 0

  await page.evaluate(() => { document.querySelector('#max_tokens').value = '400'; });
  await sayAndClick('And then?', '#stop');
  await written();
  assert.equal(await articles('error').count(), 0); // what was written so far stays
  await picture('stopped');

  // A new conversation does not start with the answer that it aborted.
  await sayAndClick('More', '#clear');
  await written();
  const asked = page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions'));
  await page.evaluate(() => { document.querySelector('#max_tokens').value = '30'; });
  await say('Hello');
  assert.equal(JSON.parse((await asked).postData()).messages.length, 1);
  await written();
  assert.equal(await articles('assistant').count(), 1);

  // Markdown, rendered by the page's own code; nothing in the text becomes an element.
  const drawn = await page.evaluate(async () => {
    const { markdown } = await import('./chat_markdown.js');
    const text = '# Title\n\nSome **bold**, *thin* and `code`, <img src=x onerror=alert(1)>.\n\n- one\n- two\n\n' +
      '```python\nprint("a < b")\n```\n\n1. first\n2. second\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[link](https://a.example)';
    const article = document.createElement('article');
    article.className = 'assistant';
    article.append(...markdown(text));
    document.querySelector('#messages').append(article);
    article.scrollIntoView();
    return { images: article.querySelectorAll('img').length, code: article.querySelector('pre')?.textContent || '' };
  });
  assert.equal(drawn.images, 0);
  assert(drawn.code.includes('print("a < b")'));
  await picture('markdown');

  await page.setViewportSize({ width: 390, height: 760 });
  await picture('narrow');
  assert(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), 'the page is too wide');
  assert(await page.evaluate(() => {
    const name = document.querySelector('#model');
    return name.scrollWidth <= name.clientWidth;
  }), 'the name is cut');
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture('dark');

  // Too long a prompt gives an error that explains it, and Retry repeats the request.
  await page.click('#clear');
  await say('word '.repeat(3000));
  await page.waitForSelector('article.error');
  await picture('error');
  assert.match(await articles('error').first().innerText(), /tokens/);

  // The next message is sent with the one that has no answer, as templates refuse two messages of a user in turn.
  const next = page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions'));
  await say('Shorter');
  const sent = JSON.parse((await next).postData()).messages;
  assert.equal(sent.length, 1);
  assert(sent[0].content.endsWith('\n\nShorter'));
  await written();

  // The page of a server with a token says what it needs.
  await page.route('**/v1/models', (route) => route.fulfill({ status: 401, json: { error: 'no token' } }));
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#model').textContent.includes('#token=TOKEN'));
  assert.deepEqual(errors.filter((text) => !/40[01]/.test(text)), []);
  console.log(`the chat page works; pictures are in ${folder}`);
} finally {
  await browser.close();
  fs.rmSync(profile, { recursive: true, force: true });
}
