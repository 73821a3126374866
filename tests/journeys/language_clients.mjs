// Tests the npm packages `openai` and `ollama` with `harmonics serve MODEL`.
//
//   npm install openai ollama
//   harmonics serve stories260K.bin --tokenizer tok512.bin --context 2048 --listen 127.0.0.1:8080 --token secret-key
//   node tests/journeys/language_clients.mjs http://127.0.0.1:8080 secret-key
import assert from 'node:assert';
import { Ollama } from 'ollama';
import OpenAI from 'openai';

const [address, key] = process.argv.slice(2);
if (!key) throw new Error('usage: language_clients.mjs ADDRESS KEY');
const client = new OpenAI({ baseURL: address + '/v1', apiKey: key });
const model = (await client.models.list()).data[0].id;
assert.equal((await client.models.retrieve(model)).id, model);
const messages = [{ role: 'user', content: 'Once upon a time' }];

const chat = { model, messages, max_tokens: 10, temperature: 0 };
const answer = await client.chat.completions.create(chat);
let pieces = '';
for await (const chunk of await client.chat.completions.create({ ...chat, stream: true }))
  pieces += chunk.choices[0]?.delta?.content ?? '';
assert.equal(pieces, answer.choices[0].message.content);

const several = await client.chat.completions.create({ ...chat, temperature: 1.2, n: 2, seed: 5 });
assert.deepEqual(several.choices.map((choice) => choice.index), [0, 1]);
const texts = ['', ''];
for await (const chunk of await client.chat.completions.create({ ...chat, temperature: 1.2, n: 2, seed: 5, stream: true }))
  for (const choice of chunk.choices) texts[choice.index] += choice.delta?.content ?? '';
assert.deepEqual(texts, several.choices.map((choice) => choice.message.content));

const tools = ['weather', 'clock'].map((name) => ({ type: 'function', function: { name, parameters: {
  type: 'object', properties: { local: { type: 'boolean' } }, required: ['local'], additionalProperties: false } } }));
for (const [choice, names] of [['required', ['weather', 'clock']],
  [{ type: 'function', function: { name: 'clock' } }, ['clock']]]) {
  const asked = { model, messages, tools, tool_choice: choice, max_tokens: 200, seed: 1 };
  const whole = await client.chat.completions.create(asked);
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  for (const { finish_reason, message } of [whole.choices[0], streamed.choices[0]]) {
    assert.equal(finish_reason, 'tool_calls');
    assert(names.includes(message.tool_calls[0].function.name));
    assert.equal(typeof JSON.parse(message.tool_calls[0].function.arguments).local, 'boolean');
  }
}

const ask = { model, input: 'Once upon a time', max_output_tokens: 10, temperature: 0 };
const first = await client.responses.create(ask);
assert(first.output_text.length > 0);
let said = '';
let last = '';
for await (const event of await client.responses.create({ ...ask, stream: true })) {
  if (event.type === 'response.output_text.delta') said += event.delta;
  last = event.type;
}
assert.equal(said, first.output_text);
assert(['response.completed', 'response.incomplete'].includes(last));
const next = await client.responses.create({ ...ask, input: 'And then?', previous_response_id: first.id });
assert.equal(next.previous_response_id, first.id);
assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text);

const vectors = await client.embeddings.create({ model, input: ['Once', 'Lily'] });
assert.equal(vectors.data.length, 2);
assert(Math.abs(vectors.data[1].embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-4);

await assert.rejects(client.responses.create({ model, input: [] }), OpenAI.BadRequestError);
const unauthorized = new OpenAI({ baseURL: address + '/v1', apiKey: 'wrong' });
await assert.rejects(unauthorized.models.list(), OpenAI.AuthenticationError);

const ollama = new Ollama({ host: address, headers: { Authorization: 'Bearer ' + key } });
assert.equal((await ollama.list()).models[0].model, (await ollama.ps()).models[0].model);
const few = { num_predict: 5, temperature: 0 };
const spoken = await ollama.chat({ model, messages, options: few });
assert(spoken.done && spoken.eval_count <= 5);
let told = '';
for await (const part of await ollama.chat({ model, messages, options: few, stream: true }))
  told += part.message.content;
assert.equal(told, spoken.message.content);
assert.equal((await ollama.embed({ model, input: ['Once', 'Lily'] })).embeddings.length, 2);
assert((await ollama.generate({ model, prompt: 'Once', options: few })).eval_count <= 5);
console.log('the npm clients of OpenAI and Ollama are answered');
