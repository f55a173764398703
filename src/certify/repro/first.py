def setup_module():
    """No answer is an error, which pytest tells from a failure only before the test."""
    tries()
    ask_alone(renewed(REQUEST))


def test_the_first_answer_to_a_new_prompt_is_the_later_one():
    unclear = 0
    for at in range(tries()):
        request = renewed(REQUEST)
        first, second, third = (ask_alone(request) for _ in range(3))
        if first_difference(("second", second), ("third", third)):
            unclear += 1
            continue
        difference = first_difference(("first", first), ("second and third", second))
        assert difference is None, f"{difference} (new prompt {at + 1} of {tries()})"
    if unclear:
        raise RuntimeError(f"in {unclear} of {tries()} tries, the second and the third answer differ already")


def run():
    setup_module()
    test_the_first_answer_to_a_new_prompt_is_the_later_one()
    return f"the first answer to each of {tries()} new prompts was the answer that came later"
