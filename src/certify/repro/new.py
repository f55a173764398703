def setup_module():
    """No answer is an error, which pytest tells from a failure only before the test."""
    tries()
    ask_alone(renewed(REQUEST))


def test_an_answer_to_a_new_prompt_in_a_crowd_is_the_answer_alone():
    unclear = 0
    for at in range(tries()):
        # The crowd is the first to bring the prompt; its answers alone come after.
        request = renewed(REQUEST)
        crowd = ask_in_crowd(request)
        alone, again = ask_alone(request), ask_alone(request)
        if first_difference(("alone", alone), ("again", again)):
            unclear += 1
            continue
        difference = first_difference(("alone", alone), ("in a crowd before that", crowd))
        assert difference is None, f"{difference} (crowd {at + 1} of {tries()})"
    if unclear:
        raise RuntimeError(f"in {unclear} of {tries()} tries, two answers to the request alone differ already")


def run():
    setup_module()
    test_an_answer_to_a_new_prompt_in_a_crowd_is_the_answer_alone()
    return f"{tries()} crowds of new prompts gave the answer that the request gets alone"
