#!/usr/bin/env python3
"""Tries the packages `openai` and `ollama` against `harmonics serve MODEL`.

    pip install openai ollama
    harmonics serve stories260K.bin --tokenizer tok512.bin --listen 127.0.0.1:8080 --token secret-key
    tests/journeys/language_clients.py http://127.0.0.1:8080 secret-key
"""
import sys

import ollama
from openai import AuthenticationError, BadRequestError, OpenAI
from pydantic import BaseModel

MESSAGES = [{"role": "user", "content": "Once upon a time"}]


class Answer(BaseModel):
    name: str
    good: bool


def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise SystemExit(f"no {kind.__name__}")


def try_openai(address, key):
    client = OpenAI(base_url=address + "/v1", api_key=key)
    model = client.models.list().data[0].id
    greedy = {"model": model, "messages": MESSAGES, "max_tokens": 10, "temperature": 0}
    whole = client.chat.completions.create(**greedy, logprobs=True, top_logprobs=2)
    assert whole.usage.completion_tokens == len(whole.choices[0].logprobs.content)
    pieces = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**greedy, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    parsed = client.chat.completions.parse(model=model, messages=MESSAGES, response_format=Answer, max_tokens=300, seed=1)
    assert isinstance(parsed.choices[0].message.parsed, Answer)
    assert client.completions.create(model=model, prompt="Once", max_tokens=3).usage.completion_tokens <= 3
    refused(AuthenticationError, OpenAI(base_url=address + "/v1", api_key="wrong").models.list)
    assert "messages" in refused(BadRequestError, lambda: client.chat.completions.create(model=model, messages=[]))


def try_ollama(address, key):
    client = ollama.Client(host=address, headers={"Authorization": "Bearer " + key})
    model = client.list().models[0].model
    assert client.ps().models[0].model == model
    assert client.show(model).template
    few = {"num_predict": 5, "temperature": 0}
    assert client.chat(model=model, messages=MESSAGES, options=few).eval_count <= 5
    pieces = list(client.generate(model=model, prompt="Once", raw=True, stream=True, options=few))
    assert pieces[-1].done and not pieces[0].done


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    try_openai(*sys.argv[1:])
    try_ollama(*sys.argv[1:])
    print("the clients of OpenAI and Ollama are answered")
