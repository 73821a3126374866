#!/usr/bin/env python3
"""Tries the packages `openai` and `ollama` against `harmonics serve MODEL`.

    pip install openai ollama
    harmonics serve stories260K.bin --tokenizer tok512.bin --context 2048 --listen 127.0.0.1:8080 --token secret-key
    tests/journeys/language_clients.py http://127.0.0.1:8080 secret-key
"""
import json
import sys

import ollama
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel

MESSAGES = [{"role": "user", "content": "Once upon a time"}]


class Answer(BaseModel):
    name: str
    good: bool


def tool(name, properties):
    return {"type": "function", "function": {"name": name, "description": "answers", "parameters": {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}}


TOOLS = [tool("weather", {"city": {"enum": ["Paris", "Rome"]}}), tool("clock", {"local": {"type": "boolean"}})]


def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise SystemExit(f"no {kind.__name__}")


def try_openai(address, key):
    client = OpenAI(base_url=address + "/v1", api_key=key)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    greedy = {"model": model, "messages": MESSAGES, "max_tokens": 10, "temperature": 0}
    whole = client.chat.completions.create(**greedy, logprobs=True, top_logprobs=2)
    assert whole.usage.completion_tokens == len(whole.choices[0].logprobs.content)
    pieces = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**greedy, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    parsed = client.chat.completions.parse(model=model, messages=MESSAGES, response_format=Answer, max_tokens=1500,
                                           seed=1)
    assert isinstance(parsed.choices[0].message.parsed, Answer)
    assert client.completions.create(model=model, prompt="Once", max_tokens=3).usage.completion_tokens <= 3
    several = client.chat.completions.create(**{**greedy, "temperature": 1.2}, n=3, seed=5).choices
    assert [choice.index for choice in several] == [0, 1, 2] and len({c.message.content for c in several}) > 1
    lists = client.completions.create(model=model, prompt=["Once", "Lily"], n=2, max_tokens=3, echo=True).choices
    assert [choice.text[:4] for choice in lists] == ["Once", "Once", "Lily", "Lily"]
    try_tools(client, {"model": model, "messages": MESSAGES, "max_tokens": 200, "seed": 1})
    try_responses(client, model)
    try_embeddings(client, model)
    refused(AuthenticationError, OpenAI(base_url=address + "/v1", api_key="wrong").models.list)
    assert "messages" in refused(BadRequestError, lambda: client.chat.completions.create(model=model, messages=[]))
    try:
        client.completions.create(model=model, prompt="Once", temperature=-1)
    except BadRequestError as error:
        assert error.param == "temperature", error.param


def try_tools(client, asked):
    def check(choice, names):
        assert choice.finish_reason == "tool_calls", choice
        call = choice.message.tool_calls[0].function
        arguments = json.loads(call.arguments)
        assert call.name in names and set(arguments) == ({"city"} if call.name == "weather" else {"local"}), call

    named = {"type": "function", "function": {"name": "clock"}}
    for wanted, names in (("required", ("weather", "clock")), (named, ("clock",))):
        check(client.chat.completions.create(**asked, tools=TOOLS, tool_choice=wanted).choices[0], names)
        with client.chat.completions.stream(**asked, tools=TOOLS, tool_choice=wanted) as stream:
            check(stream.get_final_completion().choices[0], names)
    free = client.chat.completions.create(**{**asked, "max_tokens": 10}, tools=TOOLS, tool_choice="none").choices[0]
    assert not free.message.tool_calls
    other = {"type": "function", "function": {"name": "other"}}
    assert "other" in refused(BadRequestError,
                              lambda: client.chat.completions.create(**asked, tools=TOOLS, tool_choice=other))


def try_responses(client, model):
    first = client.responses.create(model=model, input="Once upon a time", max_output_tokens=10, temperature=0)
    assert first.output_text and first.usage.output_tokens <= 10
    again = client.responses.create(model=model, input="And then?", previous_response_id=first.id, max_output_tokens=5,
                                    instructions="Be brief", temperature=0)
    assert again.previous_response_id == first.id and again.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text
    events = list(client.responses.create(model=model, input="Once upon a time", max_output_tokens=10, temperature=0,
                                          stream=True))
    assert events[0].type == "response.created" and events[-1].type in ("response.completed", "response.incomplete")
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == first.output_text
    parsed = client.responses.parse(model=model, input="Once upon a time", text_format=Answer, max_output_tokens=1500)
    assert isinstance(parsed.output_parsed, Answer)
    functions = [{"type": "function", "strict": True, **t["function"]} for t in TOOLS]
    called = client.responses.create(model=model, input="Once upon a time", tools=functions, tool_choice="required",
                                     max_output_tokens=200)
    calls = [item for item in called.output if item.type == "function_call"]
    assert calls and calls[0].name in ("weather", "clock") and json.loads(calls[0].arguments)
    both = client.responses.parse(model=model, input="Once upon a time", tools=functions, text_format=Answer,
                                  tool_choice={"type": "function", "name": "clock"}, max_output_tokens=200)
    assert [item.name for item in both.output if item.type == "function_call"] == ["clock"]
    client.responses.delete(first.id)
    refused(NotFoundError, lambda: client.responses.retrieve(first.id))
    assert "'input'" in refused(BadRequestError, lambda: client.responses.create(model=model, input=[]))


def try_embeddings(client, model):
    both = client.embeddings.create(model=model, input=["Once upon a time", "Lily"], encoding_format="float")
    packed = client.embeddings.create(model=model, input="Lily")  # asks for base64, and decodes it
    assert len(both.data) == 2 and both.usage.prompt_tokens > packed.usage.prompt_tokens
    assert max(abs(a - b) for a, b in zip(packed.data[0].embedding, both.data[1].embedding)) < 1e-6
    assert abs(sum(x * x for x in packed.data[0].embedding) - 1) < 1e-4
    assert len(client.embeddings.create(model=model, input=[[1, 2]], dimensions=3).data[0].embedding) == 3


def try_ollama(address, key):
    client = ollama.Client(host=address, headers={"Authorization": "Bearer " + key})
    model = client.list().models[0].model
    assert client.ps().models[0].model == model
    assert client.show(model).template and len(client.list().models[0].digest) == 64
    few = {"num_predict": 5, "temperature": 0}
    assert client.chat(model=model, messages=MESSAGES, options=few).eval_count <= 5
    vectors = client.embed(model=model, input=["Once", "Lily"]).embeddings
    assert len(vectors) == 2 and len(client.embeddings(model=model, prompt="Lily").embedding) == len(vectors[1])
    shaped = client.chat(model=model, messages=MESSAGES, format=Answer.model_json_schema(),
                         options={"num_predict": 1500})
    assert Answer.model_validate_json(shaped.message.content)
    streamed = list(client.chat(model=model, messages=MESSAGES, stream=True, tools=TOOLS, options=few))
    assert streamed[-1].done and streamed[-1].eval_count <= 5
    assert client.generate(model=model).done_reason == "load"
    pieces = list(client.generate(model=model, prompt="Once", raw=True, stream=True, options=few))
    assert pieces[-1].done and not pieces[0].done


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    try_openai(*sys.argv[1:])
    try_ollama(*sys.argv[1:])
    print("the clients of OpenAI and Ollama are answered")
