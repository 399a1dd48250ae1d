"""One scenario with LangChain's ChatOpenAI against a running gateway; prints what it saw as JSON.

    python langchain_chat.py SCENARIO        with TT_URL (the gateway's base URL) and TT_KEY in the environment

Retries are those of the SDK below it. The caller compares the facts with what they should be.
"""

import json
import os
import sys

import openai
from langchain_openai import ChatOpenAI

sent = 0


def count(_request) -> None:
    global sent
    sent += 1


MODEL = ChatOpenAI(
    model="m1",
    base_url=os.environ["TT_URL"] + "/v1",
    api_key=os.environ["TT_KEY"],
    timeout=20,
    http_client=openai.DefaultHttpxClient(event_hooks={"request": [count]}),
)


def usage_of(message) -> list[int] | None:
    used = message.usage_metadata
    return None if used is None else [used["input_tokens"], used["output_tokens"]]


def answer() -> dict:
    message = MODEL.invoke("say something")
    return {"text": message.text, "usage": usage_of(message)}


def stream() -> dict:
    chunks = list(MODEL.stream("say something"))
    return {
        "text": "".join(chunk.text for chunk in chunks),
        "usage": [usage_of(chunk) for chunk in chunks if chunk.usage_metadata is not None],
    }


def caught() -> dict:
    """What becomes of one more request."""
    global sent
    sent = 0
    try:
        MODEL.invoke("say something")
    except openai.APIStatusError as error:
        headers = error.response.headers
        return {
            "attempts": sent,
            "error": openai_class(error).__name__,
            "status": error.status_code,
            "type": error.type,
            "code": error.code,
            "refused_by": error.body.get("refused_by"),
            "should_retry": headers.get("x-should-retry"),
            "request_id_is_the_header": error.request_id == headers["x-request-id"] != "",
        }
    return {"attempts": sent, "error": None}


def openai_class(error) -> type:
    """The SDK's class, where LangChain raises one of its own that is derived from it."""
    return next(kind for kind in type(error).__mro__ if kind.__module__.startswith("openai"))


def refused() -> dict:
    MODEL.invoke("say something")
    return caught()


def held() -> dict:
    chunks = MODEL.stream("say something")
    next(chunks)
    facts = caught()
    chunks.close()
    return facts


SCENARIOS = {"answer": answer, "stream": stream, "caught": caught, "refused": refused, "held": held}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()))
