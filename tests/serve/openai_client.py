"""Asks a server everything that tests/serve/python.rs is about, through OpenAI's client. Argument: the base URL."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)

models = client.models.list()
assert [m.id for m in models] == ["tiny"], models
assert client.models.retrieve("tiny").owned_by == "lockstep"

ask = dict(model="tiny", prompt="Once", max_tokens=12, seed=7, temperature=0.8)
plain = client.completions.create(**ask, n=2, logprobs=3, extra_body={"return_token_ids": True})
assert plain.object == "text_completion" and len(plain.choices) == 2
assert plain.usage.prompt_tokens == 4
assert plain.usage.completion_tokens == sum(len(c.token_ids) for c in plain.choices)
assert plain.usage.prompt_tokens_details.cached_tokens == 0
for choice in plain.choices:
    assert choice.finish_reason in ("length", "stop")
    scores = choice.logprobs
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == len(choice.token_ids)
    assert all(x <= 0 for x in scores.token_logprobs)
    assert all(3 <= len(top) <= 4 for top in scores.top_logprobs)

pieces = list(client.completions.create(**ask, n=2, stream=True, stream_options={"include_usage": True}))
text = ["", ""]
for piece in pieces:
    for choice in piece.choices:
        text[choice.index] += choice.text
assert text == [c.text for c in plain.choices], text
assert pieces[-1].usage.completion_tokens == plain.usage.completion_tokens

ids = client.completions.create(model="tiny", prompt=[79, 110, 99, 101], max_tokens=12, seed=7, temperature=0.8)
assert ids.choices[0].text == plain.choices[0].text

echo = client.completions.create(model="tiny", prompt="Once", echo=True, logprobs=0, max_tokens=0)
assert echo.choices[0].text == "Once" and echo.choices[0].logprobs.token_logprobs[0] is None
assert len(echo.choices[0].logprobs.token_logprobs) == 4

ask = dict(
    model="tiny",
    messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    max_completion_tokens=10,
    seed=3,
)
chat = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
message = chat.choices[0].message
assert message.role == "assistant" and isinstance(message.content, str)
assert all(len(t.top_logprobs) == 2 for t in chat.choices[0].logprobs.content)
text = ""
for piece in client.chat.completions.create(**ask, stream=True):
    text += piece.choices[0].delta.content or ""
assert text == message.content

try:
    client.completions.create(model="tiny", prompt="x", presence_penalty=1)
    raise AssertionError("an unsupported parameter was taken")
except openai.BadRequestError as error:
    assert error.param == "presence_penalty" and error.code == "unsupported_parameter", error
try:
    client.completions.create(model="other", prompt="x")
    raise AssertionError("another model was taken")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

with client.completions.create(model="tiny", prompt="x", max_tokens=900, stream=True) as stream:
    next(iter(stream))

print("ok")
