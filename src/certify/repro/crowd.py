def ask_in_crowd(request):
    """The answer to the request, sent together with its neighbours."""
    others = [renewed(body) if NEW["neighbours"] else body for body in NEIGHBOURS]
    bodies = others[:PLACE] + [request] + others[PLACE:]
    barrier = threading.Barrier(len(bodies))
    answers, errors = {}, []

    def member(place, body):
        try:
            connection = connect()
            barrier.wait(TIMEOUT_S)
            time.sleep(DELAYS_MS[place] / 1000)
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


