def setup_module():
    """Identical traffic first, so that what is cached is cached; then the request must be repeatable alone."""
    global alone
    tries()
    for body in ([] if NEW["neighbours"] else NEIGHBOURS) + [REQUEST]:
        ask_alone(body)
    alone = ask_alone(REQUEST)
    difference = first_difference(("alone", alone), ("again", ask_alone(REQUEST)))
    if difference:
        raise RuntimeError(f"the request alone is not repeatable: {difference}")


def test_an_answer_in_a_crowd_is_the_answer_alone():
    for at in range(tries()):
        difference = first_difference(("alone", alone), ("in a crowd", ask_in_crowd(REQUEST)))
        if difference is None:
            continue
        told = f"{difference} (crowd {at + 1} of {tries()})"
        left = first_difference(("alone before it", alone), ("alone after it", ask_alone(REQUEST)))
        assert left is None, f"{told}; the crowd left something behind: {left}"
        raise AssertionError(f"{told}; after it, the request alone gets the answer from before it")


def run():
    setup_module()
    test_an_answer_in_a_crowd_is_the_answer_alone()
    return f"{tries()} crowds gave the answer that the request gets alone"
