"""One scenario with the official `anthropic` SDK against a running gateway; prints what it saw as JSON.

    python messages.py SCENARIO        with TT_URL (the gateway's base URL) and TT_KEY in the environment

Retries are the SDK's own. The caller compares the facts with what they should be.
"""

import json
import os
import sys

import anthropic

ASK = {"model": "m1", "max_tokens": 8, "messages": [{"role": "user", "content": "say something"}]}
sent = 0


def count(_request) -> None:
    global sent
    sent += 1


SDK = anthropic.Anthropic(
    base_url=os.environ["TT_URL"],
    api_key=os.environ["TT_KEY"],
    timeout=20,
    http_client=anthropic.DefaultHttpxClient(event_hooks={"request": [count]}),
)


def seen(message) -> dict:
    used = message.usage
    cache = [used.cache_creation_input_tokens, used.cache_read_input_tokens]
    return {"text": message.content[0].text, "usage": [used.input_tokens, *cache, used.output_tokens]}


def answer() -> dict:
    raw = SDK.messages.with_raw_response.create(**ASK)
    left = raw.headers["anthropic-ratelimit-requests-remaining"]
    return {**seen(raw.parse()), "requests_left": left}


def stream() -> dict:
    with SDK.messages.stream(**ASK) as events:
        # `text` is the SDK's own event beside each delta.
        kinds = [event.type for event in events if event.type != "text"]
        return {**seen(events.get_final_message()), "events": kinds}


def caught() -> dict:
    """What the SDK makes of one more request."""
    global sent
    sent = 0
    try:
        SDK.messages.create(**ASK)
    except anthropic.APIStatusError as error:
        inner = error.body["error"]
        headers = error.response.headers
        return {
            "attempts": sent,
            "error": type(error).__name__,
            "status": error.status_code,
            "kind": error.body["type"],
            "type": error.type,
            "code": inner["code"],
            "refused_by": inner.get("refused_by"),
            "should_retry": headers.get("x-should-retry"),
            "request_id_is_the_header": error.request_id
            == error.body["request_id"]
            == headers["x-request-id"]
            != "",
        }
    return {"attempts": sent, "error": None}


def refused() -> dict:
    SDK.messages.create(**ASK)
    return caught()


def held() -> dict:
    with SDK.messages.create(**ASK, stream=True) as events:
        next(iter(events))
        return caught()


SCENARIOS = {"answer": answer, "stream": stream, "caught": caught, "refused": refused, "held": held}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()))
