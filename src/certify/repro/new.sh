unclear=0
try=1
while [ "$try" -le "$tries" ]; do
    # The crowd is the first to bring the prompt; its answers alone come after.
    crowd "$try"
    ask request "$try-alone-1"
    ask request "$try-alone-2"
    if differ "$try-alone-1" "$try-alone-2" > /dev/null; then
        unclear=$((unclear + 1))
    elif differ "$try-alone-1" "$try-request"; then
        echo "FAILED: above, < is the answer alone and > the answer in a crowd before it, at try $try of $tries"
        exit 1
    fi
    rm -f "$dir/$try-"*
    try=$((try + 1))
done
if [ "$unclear" -gt 0 ]; then
    echo "in $unclear of $tries tries, two answers to the request alone differ already: nothing was found out" >&2
    exit 2
fi
echo "passed: $tries crowds of new prompts gave the answer that the request gets alone"
