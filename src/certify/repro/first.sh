unclear=0
try=1
while [ "$try" -le "$tries" ]; do
    renew request
    ask request "$try-first"
    ask request "$try-second"
    ask request "$try-third"
    if differ "$try-second" "$try-third" > /dev/null; then
        unclear=$((unclear + 1))
    elif differ "$try-first" "$try-second"; then
        echo "FAILED: above, < is the first answer to a new prompt and > the second and third, at try $try of $tries"
        exit 1
    fi
    rm -f "$dir/$try-"*
    try=$((try + 1))
done
if [ "$unclear" -gt 0 ]; then
    echo "in $unclear of $tries tries, the second and the third answer differ already: nothing was found out" >&2
    exit 2
fi
echo "passed: the first answer to each of $tries new prompts was the answer that came later"
