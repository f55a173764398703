# crowd NAME: all of the crowd, each at its time after the first.
crowd() {
    while read -r delay body is_new; do
        [ "$is_new" = same ] || renew "$body"
        prepare "$body" "$1-$body"
    done < "$dir/crowd"
    while read -r delay body is_new; do
        {
            [ "$delay" = 0 ] || sleep "$delay"
            send "$1-$body"
        } &
    done < "$dir/crowd"
    wait
    if [ -e "$dir/failed" ]; then
        echo "${url%/}/$path: a request of the crowd got no answer" >&2
        exit 2
    fi
    parts "$1-request"
}

