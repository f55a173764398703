#!/bin/sh
#@ header
#
# Asks one request alone and then in a crowd, again and again, until the two answers differ.
# Exit codes: 0 no answer differed, 1 one did, 2 nothing was found out.
# OPENAI_BASE_URL asks another server, OPENAI_API_KEY is sent if it is set, TRIES says how often a crowd is asked.
set -u
umask 077
run=$$-$(date +%s)
#@ settings
tries=${TRIES:-$default_tries}
case $tries in
    '' | *[!0-9]* | 0*)
        echo "TRIES is $tries: expected a number of crowds, 1 or more" >&2
        exit 2
        ;;
esac
url=${url%/}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' HUP INT TERM

#@ bodies
# The key goes through a file, so that no list of processes shows it.
echo 'header = "Content-Type: application/json"' > "$dir/curlrc"
if [ -n "${OPENAI_API_KEY:-}" ]; then
    key=$(printf '%s' "$OPENAI_API_KEY" | sed 's/[\\"]/\\&/g')
    printf 'header = "Authorization: Bearer %s"\n' "$key" >> "$dir/curlrc"
fi

# ask BODY ANSWER: one request. A salt that keeps it from a cache is a new one each time.
ask() {
    sed "s/\"cache_salt\":\"[^\"]*\"/\"cache_salt\":\"$run-$2\"/" "$dir/$1.json" > "$dir/$2.body"
    curl --silent --show-error --fail --max-time 120 --config "$dir/curlrc" \
        --data-binary "@$dir/$2.body" --output "$dir/$2" "$url/$path" || touch "$dir/failed"
}

# What belongs to an answer, a part a line: without names, times and counts of a request of its own.
parts() {
    tr -d '\n' < "$dir/$1" | sed -E \
        -e 's/"(id|system_fingerprint)" *: *"[^"]*" *,?//g' \
        -e 's/"created" *: *[0-9]+ *,?//g' \
        -e 's/"(usage|timings)" *: *\{[^{}]*(\{[^{}]*\}[^{}]*)*\} *,?//g' | tr ',' '\n' > "$dir/$1.parts"
}

stop_if_failed() {
    if [ -e "$dir/failed" ]; then
        echo "$url/$path: no answer; OPENAI_BASE_URL names another server" >&2
        exit 2
    fi
}

# Identical traffic first: what is cached is cached from here on.
#@ prime
ask request alone-0
ask request alone-1
ask request alone-2
stop_if_failed
parts alone-1
parts alone-2
if ! diff "$dir/alone-1.parts" "$dir/alone-2.parts"; then
    echo "answers to the request alone differ already" >&2
    exit 2
fi

try=1
while [ "$try" -le "$tries" ]; do
#@ crowd
    wait
    stop_if_failed
    parts "crowd-$try"
    if ! diff "$dir/alone-1.parts" "$dir/crowd-$try.parts"; then
        echo "FAILED: above, < is the answer alone and > the answer in a crowd, at try $try of $tries"
        exit 1
    fi
    try=$((try + 1))
done
echo "passed: $tries crowds gave the answer that the request gets alone"
