# renew BODY: a prompt that the server has not seen, as long as before. Its first id stays, the others are drawn.
seed=$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')
renew() {
    seed=$((seed + 1))
    LC_ALL=C awk -v seed="$seed" -v pool="$pool" '{
        start = length("{\"prompt\":[")
        end = index($0, "]")
        ids = split(substr($0, start + 1, end - start - 1), id, ",")
        size = split(pool, from, " ")
        srand(seed)
        prompt = id[1]
        for (i = 2; i <= ids; i++) prompt = prompt "," from[1 + int(rand() * size)]
        print substr($0, 1, start) prompt substr($0, end)
    }' "$dir/$1.json" > "$dir/renewed"
    mv "$dir/renewed" "$dir/$1.json"
}

