# Identical traffic first: what is cached is cached from here on.
while read -r delay body is_new; do
    [ "$is_new" = new ] || [ "$body" = request ] || ask "$body" "before-$body"
done < "$dir/crowd"
ask request alone-0
ask request alone-1
ask request alone-2
if differ alone-1 alone-2; then
    echo "answers to the request alone differ already: nothing was found out" >&2
    exit 2
fi

try=1
while [ "$try" -le "$tries" ]; do
    crowd "$try"
    if differ alone-1 "$try-request"; then
        echo "FAILED: above, < is the answer alone and > the answer in a crowd, at try $try of $tries"
        ask request again
        if differ alone-1 again; then
            echo "FAILED: the crowd left something behind: above, < is the answer alone before it and > the answer alone after it"
        else
            echo "After the crowd, the request alone gets the answer from before it."
        fi
        exit 1
    fi
    rm -f "$dir/$try-"*
    try=$((try + 1))
done
echo "passed: $tries crowds gave the answer that the request gets alone"
