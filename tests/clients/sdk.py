"""One scenario with the official SDK against a running gateway; prints what it saw as JSON.

    python sdk.py SCENARIO        with TT_URL (the gateway's base URL) and TT_KEY in the environment

The caller compares the facts with what they should be, and with what the backend was asked.
"""

import json
import os
import sys

import openai

MESSAGES = [{"role": "user", "content": "say something"}]


class Counted:
    """A client of the SDK, and how many requests it really sent."""

    def __init__(self, max_retries: int):
        self.attempts = 0
        http = openai.DefaultHttpxClient(event_hooks={"request": [self._sent]})
        self.sdk = openai.OpenAI(
            base_url=os.environ["TT_URL"] + "/v1",
            api_key=os.environ["TT_KEY"],
            max_retries=max_retries,
            timeout=20,
            http_client=http,
        )

    def _sent(self, _request) -> None:
        self.attempts += 1

    def chat(self, **more):
        return self.sdk.chat.completions.create(model="m1", messages=MESSAGES, **more)


def usage_of(answer) -> list[int] | None:
    usage = answer.usage
    return None if usage is None else [usage.prompt_tokens, usage.completion_tokens]


def chat() -> dict:
    answer = Counted(0).chat(max_tokens=8)
    return {"text": answer.choices[0].message.content, "usage": usage_of(answer)}


def read(stream) -> dict:
    chunks = list(stream)
    texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    return {
        "text": "".join(texts),
        "without_choices": sum(not c.choices for c in chunks),
        "usage": [usage_of(c) for c in chunks if c.usage is not None],
    }


def stream() -> dict:
    return read(Counted(0).chat(stream=True))


def stream_with_usage() -> dict:
    return read(Counted(0).chat(stream=True, stream_options={"include_usage": True}))


def stream_left() -> dict:
    stream = Counted(0).chat(stream=True)
    first = next(iter(stream)).choices[0].delta.content
    stream.close()
    return {"first": first}


def embeddings() -> dict:
    answer = Counted(0).sdk.embeddings.create(model="m1", input="text", encoding_format="float")
    return {"vector": answer.data[0].embedding, "prompt_tokens": answer.usage.prompt_tokens}


def models() -> dict:
    return {"ids": [model.id for model in Counted(0).sdk.models.list()]}


def refused(retries: int) -> dict:
    """The first request may pass; the second one is caught as what the SDK makes of a 429."""
    client = Counted(retries)
    client.chat()
    client.attempts = 0
    try:
        client.chat()
    except openai.RateLimitError as error:
        headers = error.response.headers
        return {
            "attempts": client.attempts,
            "refused_by": error.body["refused_by"],
            "node": error.body["node"],
            "limit_type": error.body["limit_type"],
            "retryable": error.body["retryable"],
            "tripped": [cap["limit_id"] for cap in error.body["tripped"]],
            "code": error.code,
            "type": error.type,
            "header_refused_by": headers["x-tt-refused-by"],
            "header_refused_node": headers["x-tt-refused-node"],
            "should_retry": headers["x-should-retry"],
            "retry_after_is_whole": headers["retry-after"].isdigit(),
            "request_id_is_the_header": error.request_id == headers["x-request-id"] != "",
            "message_names_the_limit": error.body["refused_by"] in error.body["message"],
        }
    return {"attempts": client.attempts, "refused_by": None}


def bad_key() -> dict:
    client = Counted(2)
    try:
        client.chat()
    except openai.AuthenticationError as error:
        return {"attempts": client.attempts, "code": error.code}
    return {"attempts": client.attempts}


def unknown_model() -> dict:
    client = Counted(2)
    try:
        client.sdk.chat.completions.create(model="unknown", messages=MESSAGES)
    except openai.NotFoundError as error:
        return {"attempts": client.attempts, "code": error.code}
    return {"attempts": client.attempts}


SCENARIOS = {
    "chat": chat,
    "stream": stream,
    "stream_with_usage": stream_with_usage,
    "stream_left": stream_left,
    "embeddings": embeddings,
    "models": models,
    "refused": lambda: refused(0),
    "refused_with_retries": lambda: refused(2),
    "bad_key": bad_key,
    "unknown_model": unknown_model,
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()))
