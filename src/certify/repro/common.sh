#!/bin/sh
#@ header
#
# Exit codes: 0 no answer differed, 1 one did, 2 nothing was found out. OPENAI_BASE_URL asks another server, OPENAI_API_KEY is
# sent if it is set, HEADERS holds further headers (a line "Name: value" each), TRIES says how often all this is asked.
set -u
umask 077
run=$$-$(date +%s)
#@ settings
tries=${TRIES:-$default_tries}
case $tries in
    '' | *[!0-9]* | 0*)
        echo "TRIES is $tries: expected a number, 1 or more" >&2
        exit 2
        ;;
esac
if [ -z "$url" ]; then
    echo "set OPENAI_BASE_URL: part of the server's address is not stored" >&2
    exit 2
fi
# A query of the address goes behind the path of each request.
query=
case $url in
    *\?*)
        query=?${url#*\?}
        url=${url%%\?*}
        ;;
esac
address=${url%/}/$path$query
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' HUP INT TERM

#@ bodies
# Address and headers go through a file, so that no list of processes shows a key.
config() {
    printf '%s\n' "$2" | sed 's/[\\"]/\\&/g' | sed "s/..*/$1 = \"&\"/" >> "$dir/curlrc"
}
echo globoff > "$dir/curlrc"
config url "$address"
config header 'Content-Type: application/json'
[ -z "${OPENAI_API_KEY:-}" ] || config header "Authorization: Bearer $OPENAI_API_KEY"
[ -z "${HEADERS:-}" ] || config header "$HEADERS"

# prepare BODY NAME: what is sent as NAME. A salt, which keeps a request from what is cached, is a new one each time.
prepare() {
    sed "s/\"cache_salt\":\"[^\"]*\"/\"cache_salt\":\"$run-$2\"/" "$dir/$1.json" > "$dir/$2.body"
}

# send NAME: its answer is in a file of that name.
send() {
    curl --silent --show-error --fail --max-time 120 --config "$dir/curlrc" \
        --data-binary "@$dir/$1.body" --output "$dir/$1" < /dev/null || touch "$dir/failed"
}

# ask BODY NAME: a request alone.
ask() {
    prepare "$1" "$2"
    send "$2"
    if [ -e "$dir/failed" ]; then
        echo "${url%/}/$path: no answer; OPENAI_BASE_URL names another server" >&2
        exit 2
    fi
    parts "$2"
}

# What belongs to an answer, a part a line: without names, times and counts of a request of its own.
parts() {
    tr -d '\n' < "$dir/$1" | sed -E \
        -e 's/"(id|system_fingerprint)" *: *"[^"]*" *,?//g' \
        -e 's/"created" *: *[0-9]+ *,?//g' \
        -e 's/"(usage|timings)" *: *\{[^{}]*(\{[^{}]*\}[^{}]*)*\} *,?//g' | tr ',' '\n' > "$dir/$1.parts"
}

# differ NAME NAME: whether two answers differ, and where.
differ() {
    ! diff "$dir/$1.parts" "$dir/$2.parts"
}

#@ functions
#@ tries
