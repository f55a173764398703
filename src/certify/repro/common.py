#!/usr/bin/env python3
#@ header
#
# Run it with pytest, or with python3 (0 passed, 1 failed, 2 nothing was found out; to pytest 2 is a failure too). It needs
# Python 3.8, and pytest only if you run it so. OPENAI_BASE_URL asks another server, OPENAI_API_KEY is sent if it is set,
# HEADERS holds further headers (a line "Name: value" each), TRIES says how often all this is asked.

import decimal
import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.parse
import uuid

TIMEOUT_S = 120
#@ settings
PATH, REQUEST, NEIGHBOURS = CASE["path"], CASE["request"], CASE["neighbours"]
# Where the request stands among its neighbours, when each of all is sent, and whose prompts are new each time.
PLACE, DELAYS_MS, NEW = CASE["place"], CASE["delays_ms"], CASE["new"]


def connect():
    """A connection that is open already: requests that are to meet can't wait for one."""
    if not URL:
        raise ValueError("set OPENAI_BASE_URL: part of the server's address is not stored")
    base = urllib.parse.urlsplit(URL)
    of_scheme = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = of_scheme[base.scheme](base.hostname, base.port, timeout=TIMEOUT_S)
    connection.connect()
    return connection


def headers():
    """Of each request."""
    lines = ["Content-Type: application/json"] + os.environ.get("HEADERS", "").splitlines()
    if os.environ.get("OPENAI_API_KEY"):
        lines.append("Authorization: Bearer " + os.environ["OPENAI_API_KEY"])
    parts = [line.partition(":") for line in lines if ":" in line]
    return {name.strip(): value.strip() for name, _, value in parts}


def ask(connection, body):
    """The answer to a request. Its decimals are kept as they were sent."""
    if "cache_salt" in body:
        body = dict(body, cache_salt=uuid.uuid4().hex)
    base = urllib.parse.urlsplit(URL)
    path = base.path.rstrip("/") + "/" + PATH + ("?" + base.query if base.query else "")
    connection.request("POST", path, json.dumps(body), headers())
    response = connection.getresponse()
    text = response.read().decode()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {text[:200]}")
    answer = json.loads(text, parse_float=decimal.Decimal, parse_constant=lambda _: None)
    return answer["choices"][0]


def ask_alone(body):
    connection = connect()
    try:
        return ask(connection, body)
    finally:
        connection.close()


#@ functions
def name(token):
    """What names a token: its id, else its bytes, else its text."""
    if isinstance(token.get("id"), int):
        return token["id"]
    return bytes(token["bytes"]) if token.get("bytes") else token.get("token")


def positions(answer):
    """Tokens of an answer: name, log-probability, alternatives by name."""
    logprobs = answer.get("logprobs") or {}
    if logprobs.get("content") is not None:
        return [
            (name(t), t.get("logprob"), {name(a): a.get("logprob") for a in t.get("top_logprobs") or []})
            for t in logprobs["content"]
        ]
    tokens = logprobs.get("tokens") or []
    missing = [None] * len(tokens)
    values, tops = logprobs.get("token_logprobs") or missing, logprobs.get("top_logprobs") or missing
    return [(token, value, top or {}) for token, value, top in zip(tokens, values, tops)]


def text(answer):
    """The text, wherever it stands."""
    message = answer.get("message") or {}
    parts = [message.get(key) for key in ("reasoning", "reasoning_content", "content")]
    return answer.get("text") or "".join(part for part in parts if part)


def differs(a, b):
    """Whether two values that were both sent are other numbers."""
    return a is not None and b is not None and a != b


def first_difference(one, other):
    """What differs first between two named answers, in words; None if nothing does. Only alternatives that both have count."""
    (ours, a), (theirs, b) = one, other
    pairs = zip(positions(a), positions(b))
    for at, ((token, value, top), (other_token, other_value, other_top)) in enumerate(pairs):
        if token != other_token:
            return f"position {at}: {ours} token {token!r} at {value}, {theirs} {other_token!r} at {other_value}"
        if differs(value, other_value):
            return f"position {at}, token {token!r}: {ours} {value}, {theirs} {other_value}"
        for key in top:
            if differs(top[key], other_top.get(key)):
                return f"position {at}, alternative {key!r}: {ours} {top[key]}, {theirs} {other_top[key]}"
    for what, x, y in [
        ("tokens", len(positions(a)), len(positions(b))),
        ("text", text(a), text(b)),
        ("finish reason", a.get("finish_reason"), b.get("finish_reason")),
    ]:
        if x != y:
            return f"{what}: {ours} {x!r}, {theirs} {y!r}"
    return None


def tries():
    """How often it is asked."""
    if not TRIES.isdecimal() or int(TRIES) < 1:
        raise ValueError(f"TRIES is {TRIES!r}: expected a number, 1 or more")
    return int(TRIES)


#@ tries


if __name__ == "__main__":
    try:
        passed = run()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"passed: {passed}")
