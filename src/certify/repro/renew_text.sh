# renew BODY: a prompt that the server has not seen, as long as before: its first eight characters are other hex digits.
seed=$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')
renew() {
    seed=$((seed + 1))
    # The factor is odd, so that no two numbers become the same.
    head=$(printf '%08x' $((seed * 2654435761 % 4294967296)))
    LC_ALL=C awk -v start="$text_start" -v head="$head" '{
        n = 0
        while (n < 8 && substr($0, start + n + 1, 1) ~ /[0-9a-f]/) n++
        print substr($0, 1, start) substr(head, 1, n) substr($0, start + n + 1)
    }' "$dir/$1.json" > "$dir/renewed"
    mv "$dir/renewed" "$dir/$1.json"
}

