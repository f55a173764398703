#!/usr/bin/env python3
#@ header
"""One request, alone and in a crowd: the answers must be equal.

Run it as `pytest test_reproduce.py`, or as `python3 test_reproduce.py` (0 passed, 1 failed, 2 nothing was found out). It
needs Python 3.8, and pytest only if you run it so. OPENAI_BASE_URL asks another server, OPENAI_API_KEY is sent if it is
set, TRIES says how often a crowd is asked.
"""

import decimal
import http.client
import json
import os
import sys
import threading
import time
import urllib.parse
import uuid

TIMEOUT_S = 120
#@ settings


def connect():
    """A connection that is open already: requests that are to meet can't wait for one."""
    base = urllib.parse.urlsplit(URL)
    of_scheme = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = of_scheme[base.scheme](base.hostname, base.port, timeout=TIMEOUT_S)
    connection.connect()
    return connection


def ask(connection, body):
    """The answer to a request. Its decimals are kept as they were sent."""
    if "cache_salt" in body:
        body = dict(body, cache_salt=uuid.uuid4().hex)
    headers = {"Content-Type": "application/json"}
    if os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = "Bearer " + os.environ["OPENAI_API_KEY"]
    path = urllib.parse.urlsplit(URL).path.rstrip("/") + "/" + PATH
    connection.request("POST", path, json.dumps(body), headers)
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


def ask_in_crowd():
    """The answer to the request, sent together with its neighbours."""
    bodies = NEIGHBOURS[:PLACE] + [REQUEST] + NEIGHBOURS[PLACE:]
    barrier = threading.Barrier(len(bodies))
    answers, errors = {}, []

    def member(place, body):
        try:
            connection = connect()
            barrier.wait(TIMEOUT_S)
            time.sleep(place * STAGGER_S)
            answers[place] = ask(connection, body)
            connection.close()
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=member, args=each) for each in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        # Those who waited for one that failed say only that the barrier broke.
        told = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        raise (told or errors)[0]
    return answers[PLACE]


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
    return answer.get("text") or (answer.get("message") or {}).get("content")


def differs(a, b):
    """Whether two values that were both sent are other numbers."""
    return a is not None and b is not None and a != b


def first_difference(alone, crowd):
    """What differs first, in words; None if nothing does. Only alternatives that both sides have are compared."""
    ours, theirs = positions(alone), positions(crowd)
    for at, ((token, value, top), (other, other_value, other_top)) in enumerate(zip(ours, theirs)):
        if token != other:
            return f"position {at}: alone token {token!r} at {value}, in a crowd {other!r} at {other_value}"
        if differs(value, other_value):
            return f"position {at}, token {token!r}: alone {value}, in a crowd {other_value}"
        for key in top:
            if differs(top[key], other_top.get(key)):
                return f"position {at}, alternative {key!r}: alone {top[key]}, in a crowd {other_top[key]}"
    if len(ours) != len(theirs):
        return f"alone {len(ours)} tokens, in a crowd {len(theirs)}"
    for what, a, b in [
        ("text", text(alone), text(crowd)),
        ("finish reason", alone.get("finish_reason"), crowd.get("finish_reason")),
    ]:
        if a != b:
            return f"{what}: alone {a!r}, in a crowd {b!r}"
    return None


def tries():
    """How often a crowd is asked."""
    if not TRIES.isdecimal() or int(TRIES) < 1:
        raise ValueError(f"TRIES is {TRIES!r}: expected a number of crowds, 1 or more")
    return int(TRIES)


def setup_module():
    """Identical traffic first, so that what is cached is cached; then the request must be repeatable alone."""
    global alone
    tries()
    for body in NEIGHBOURS + [REQUEST]:
        ask_alone(body)
    alone = ask_alone(REQUEST)
    difference = first_difference(alone, ask_alone(REQUEST))
    if difference:
        raise RuntimeError(f"the request alone is not repeatable: {difference}")


def test_an_answer_in_a_crowd_is_the_answer_alone():
    for at in range(tries()):
        difference = first_difference(alone, ask_in_crowd())
        assert difference is None, f"{difference} (crowd {at + 1} of {tries()})"


if __name__ == "__main__":
    try:
        setup_module()
        test_an_answer_in_a_crowd_is_the_answer_alone()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
    except Exception as error:
        print(f"{URL}: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"passed: {tries()} crowds gave the answer that the request gets alone")
