def renewed(body):
    """The same request with a prompt that the server has not seen, as long as before."""
    def text(old):
        return (uuid.uuid4().hex[:8] + old[8:])[: len(old)]

    if "messages" in body:
        (message,) = body["messages"]
        return dict(body, messages=[dict(message, content=text(message["content"]))])
    if isinstance(body["prompt"], str):
        return dict(body, prompt=text(body["prompt"]))
    first, *rest = body["prompt"]
    return dict(body, prompt=[first] + random.choices(CASE["pool"], k=len(rest)))


